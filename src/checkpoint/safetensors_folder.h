#pragma once

// Which files of a folder hold a model's weights.

#include <string>
#include <vector>

#include "base/env.h"
#include "base/error.h"

namespace trireme::checkpoint {

struct SafetensorsFolder {
  std::string index;               // path; "": the files are all there is
  std::vector<std::string> files;  // paths, ascending; of an index: none
};
// model.safetensors; else its index; else the one set of shards without an index, or the one .safetensors file.
// Refused: shards that lack some, several files of which none is meant, a folder without any (named is what it has
// instead).
Result<SafetensorsFolder> safetensors_in(Env& env, const std::string& directory);

}  // namespace trireme::checkpoint
