#pragma once

// What other trainers call things (Megatron-LM, DeepSpeed, torchtitan, Hugging Face's Trainer, nanoGPT and llm.c,
// nanotron), and where they are here: for whoever writes such a name into a run.toml or on the command line.

#include <span>
#include <string_view>

#include "base/error.h"

namespace trireme::train {

struct ForeignNames {
  std::string_view key;     // of run.toml; "": there is none
  std::string_view flag;    // of trireme plan, without dashes; "": there is none
  std::string_view advice;  // what to know or do instead; may be empty where there is a key or a flag
  std::string_view names;   // lower case, underscores, between blanks
};
std::span<const ForeignNames> foreign_names();

// Of a name as written: dashes before it, capitals, and dashes for underscores do not matter. By the whole, by what is
// behind its last point, or by the table that it is in ("zero_optimization.stage"). Null: not known.
const ForeignNames* find_foreign(std::string_view written);

// Of run.toml.
bool is_section(std::string_view name);

// The refusal of a key that run.toml has not: what it is here where another trainer has it, else the key that is really
// near, else none.
Failure unknown_key(const std::string& name);

}  // namespace trireme::train
