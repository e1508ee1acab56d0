#pragma once

// One rank's part of a save: its tiles into a shard of the checkpoint, by a thread of its own. Snapshot staging:
// begin() returns once the state is copied, and training goes on. Tile staging: the state must not change until the
// outcome is there.

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "checkpoint/shard.h"
#include "engine/parallel/rank_state.h"

namespace trireme::train {

class RankSaver {
 public:
  // References outlive it. The destructor waits for the thread.
  RankSaver(Env& env, kernels::Device& device, const parallel::RunPlan& plan);
  ~RankSaver();

  // Writes the shard `path`. By the rank's own thread, with nothing in flight (CHECK). written (may be null): called on
  // the writing thread once the shard is there, before the outcome is.
  void begin(parallel::RankState& state, const std::string& path, std::function<void()> written = nullptr);

  struct Outcome {
    std::string record;  // checkpoint::ShardRecord as text; "" where it failed
    std::string error;
  };
  // Of the last begin(), once it is there. Any thread.
  std::optional<Outcome> outcome() const;

 private:
  void copy_tile(parallel::RankState& state, std::size_t slice, std::span<std::byte> to) const;
  void write(const std::string& path, const checkpoint::SliceBytes& bytes_of);

  Env& env_;
  kernels::Device& device_;
  const parallel::RunPlan& plan_;
  std::vector<checkpoint::StoredState> tensors_;
  std::vector<plan::LocalBox> tiles_;
  std::vector<checkpoint::ShardSlice> slices_;  // tiles_ of each state
  std::function<void()> written_;
  std::thread thread_;
  mutable std::mutex mutex_;
  std::optional<Outcome> outcome_;
};

}  // namespace trireme::train
