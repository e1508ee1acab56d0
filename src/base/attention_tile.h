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
// What lies side by side is padded with zeros to whole panels of columns.
inline constexpr std::int64_t kAttentionPanel = 32;
inline std::int64_t attention_padded(std::int64_t size) { return round_up(size, kAttentionPanel); }

// A strip of BF16 with its rows as columns, in panels of 14 with two words behind each. r: of the block.
inline std::int64_t attention_turned(std::int64_t s) {
  const std::int64_t r = std::min(kAttentionRows, s);
  return (s + 13) / 14 * ((r + 1) / 2 * 14 + 2);
}

// Elements of scratch a thread. s: tokens of a sequence; d: head_dim; s' and d' padded. In F32
//   forward:  keys [d, s'], values [s, d']; query, output rows [r, d']; strip [r, s']
//   backward: keys and values [d, s'], keys and both gradients [s, d']; query, its gradient, output gradient rows
//             [r, d']; two strips.
// In BF16 keys, values, queries and output gradients take half, the last two are there as rows and as columns, and
// there are a strip in BF16 and a turned one. The larger of the two is booked.
inline std::int64_t attention_forward_scratch(std::int64_t s, std::int64_t d) {
  const std::int64_t r = std::min(kAttentionRows, s), width = attention_padded(s), padded = attention_padded(d);
  const std::int64_t floats = d * width + s * padded + r * padded;
  const std::int64_t pairs = (d + 1) / 2 * width + ((s + 1) / 2 + (r + 1) / 2 + r / 2) * padded + padded / 2 +
                             r * width / 2 + attention_turned(s);
  return round_up(std::max(floats, pairs) + r * padded + r * width, 16);
}
inline std::int64_t attention_backward_scratch(std::int64_t s, std::int64_t d) {
  const std::int64_t r = std::min(kAttentionRows, s), width = attention_padded(s), padded = attention_padded(d);
  const std::int64_t floats = 2 * d * width + s * padded + 2 * r * padded;
  const std::int64_t pairs =
      (d + 1) / 2 * 2 * width + ((s + 1) / 2 + (r + 1) / 2 * 2 + r) * padded + r * width / 2 + attention_turned(s);
  return round_up(std::max(floats, pairs) + 2 * s * padded + r * padded + 2 * r * width, 16);
}

}  // namespace trireme
