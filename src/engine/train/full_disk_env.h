#pragma once

// An Env on whose disk there is no room for what is written into some files: planned faults.

#include <functional>
#include <memory>
#include <string>

#include "base/env.h"

namespace trireme::train {

// full: asked before each write with the file's path; any thread. `inner` outlives it.
std::unique_ptr<Env> make_full_disk_env(Env& inner, std::function<bool(const std::string& path)> full);

}  // namespace trireme::train
