#pragma once

// Small training runs of several ranks, as threads of this process, and everything that came out of them.

#include <map>
#include <string>
#include <vector>

#include "engine/comm/counting.h"
#include "engine/train/layout_curve.h"
#include "plan/traffic.h"
#include "support/tiny_run.h"

namespace trireme::testing {

// What one rank saw.
struct RankReport {
  Ledger predicted;
  Ledger counted;
  plan::TrafficTable predicted_traffic;             // of a step
  std::vector<comm::TrafficCount> counted_traffic;  // of one step
};

struct WorldCurve {
  std::vector<std::string> lines;                      // hex losses and norms of each step, the same on every rank
  std::map<std::string, train::TensorValues> tensors;  // after the last step, whole, by name
  std::vector<RankReport> ranks;
};

// `run.layout.world()` ranks, each with one thread. Ranks that hold the same slice must hold the same bits
// (Error otherwise), and so must all ranks' losses and norms.
WorldCurve train_world(const TinyRun& run, int steps);

}  // namespace trireme::testing
