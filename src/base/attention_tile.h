#pragma once

// The tile of the attention kernels: agreed here, since plan/ books the scratch that the kernels use.
// A work item is one key/value head of one sequence with all query heads that share it. Its thread packs that head's
// rows into contiguous scratch (so strides, and with them tensor-parallel shards, cannot change a GEMM's bits) and
// walks the queries in blocks of kAttentionRows rows; of the scores only the block's strip exists.

#include <algorithm>
#include <cstdint>

#include "base/units.h"

namespace trireme {

inline constexpr std::int64_t kAttentionRows = 64;

// Elements of scratch a thread. s: tokens of a sequence; d: head_dim.
//   forward:  keys, values [s, d]; query, output rows [r, d]; strip [r, s]
//   backward: keys, values and their gradients [s, d]; query, its gradient, output gradient rows [r, d]; two strips
inline std::int64_t attention_forward_scratch(std::int64_t s, std::int64_t d) {
  const std::int64_t r = std::min(kAttentionRows, s);
  return round_up(2 * s * d + 2 * r * d + r * s, 16);
}
inline std::int64_t attention_backward_scratch(std::int64_t s, std::int64_t d) {
  const std::int64_t r = std::min(kAttentionRows, s);
  return round_up(4 * s * d + 3 * r * d + 2 * r * s, 16);
}

}  // namespace trireme
