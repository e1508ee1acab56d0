#pragma once

// Which checkpoints a path names. It may be a checkpoint (it holds manifest.json, whatever it is called), a directory
// of checkpoints (a Store's), or a run directory, whose checkpoints are in `checkpoints`.

#include <cstdint>
#include <string>
#include <vector>

#include "base/env.h"
#include "checkpoint/store.h"

namespace trireme::checkpoint {

inline constexpr const char* kCheckpointsDirectory = "checkpoints";  // of a run directory

struct FoundCheckpoint {
  std::string path;
  std::int64_t step = -1;  // of its name; -1: the path itself, whose name says none
  Presence presence = Presence::kComplete;
  friend bool operator==(const FoundCheckpoint&, const FoundCheckpoint&) = default;
};

// All that is there, newest first; may be none: a run that has not saved yet. Refused (kUsage): no such path, a file.
Result<std::vector<FoundCheckpoint>> list_checkpoints(Env& env, const std::string& path);

// The directories of the complete ones, newest first; none where there is none. A checkpoint that is named itself is
// given whatever its name says.
Result<std::vector<std::string>> find_checkpoints(Env& env, const std::string& path);

// The first of these. Where there is none: refused (kStorage) with what is there instead.
Result<std::string> newest_checkpoint(Env& env, const std::string& path);

}  // namespace trireme::checkpoint
