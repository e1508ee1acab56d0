#pragma once

// Which tokens a tensor rank holds of the residual stream: all T rows, or with sequence parallelism (Korthikanti et al.
// 2022, section 4.2.2) rank r of N holds rows [r T / N, (r + 1) T / N): its share, in the order of comm::share_of.

#include <vector>

#include "engine/nn/context.h"

namespace trireme::nn {

// Rows of this rank that are of one sequence, ascending.
struct SequencePart {
  std::int64_t begin = 0;  // local row
  std::int64_t rows = 0;
  std::int64_t position = 0;  // of the first in its sequence
};
std::vector<SequencePart> own_sequence_parts(const UnitContext& context);

}  // namespace trireme::nn
