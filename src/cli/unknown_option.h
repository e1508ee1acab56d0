#pragma once

// What is said of an option that a command does not have.

#include <string>
#include <vector>

#include "base/error.h"

namespace trireme::cli {

// `word` as it was written ("--num-layers", "--lr=3"), `known` as the command has them ("--layers"); takes_keys: every
// key of run.toml is an option too, as --section.key. The answer: what it is here where another trainer has it, else
// the option that is really near, else all of them.
Failure unknown_option(const std::string& word, const std::vector<std::string>& known, bool takes_keys);

}  // namespace trireme::cli
