#pragma once

// The tokens of small runs.

#include "support/tiny_run.h"

namespace trireme::testing {

struct TinyBatch {
  std::vector<std::int32_t> inputs, targets;  // [micro_batch * sequence]
  std::vector<std::uint64_t> samples;
};
// Samples [first, first + micro_batch) of the run.
TinyBatch tiny_batch(const TinyRun& run, std::int64_t first);

}  // namespace trireme::testing
