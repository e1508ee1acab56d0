#pragma once

// One rank's part of a save: its tiles into a shard of the checkpoint, by a thread of its own. Snapshot staging:
// begin() returns once the state is copied, and training goes on. Tile staging: the state must not change until the
// outcome is there.

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "checkpoint/shard.h"
#include "engine/parallel/rank_state.h"

namespace trireme::train {

// What a rank writes, as the manifest counts tensors. The same on every rank that asks.
std::vector<checkpoint::ShardSlice> slices_of_rank(const model::ParameterTable& table, const plan::Layout& layout,
                                                   int rank);

class RankSaver {
 public:
  // References outlive it. The destructor waits for the thread.
  RankSaver(Env& env, kernels::Device& device, const parallel::RunPlan& plan);
  ~RankSaver();

  // Writes the shard `path`. By the rank's own thread, with nothing in flight (CHECK).
  void begin(parallel::RankState& state, const std::string& path);

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
  std::thread thread_;
  mutable std::mutex mutex_;
  std::optional<Outcome> outcome_;
};

}  // namespace trireme::train
