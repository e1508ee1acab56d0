#pragma once

// The scratch of matrix products whose operands are BF16 or F16 on the CPU backend: agreed here, since plan/ books what
// the kernels use.

#include <algorithm>
#include <cstdint>

namespace trireme {

// F16, computed in F32: operands are widened block by block (a [kNarrowRows, kNarrowInner], b [kNarrowInner,
// kNarrowColumns]), and a narrow result is summed in F32, a tile of [kNarrowRows, kNarrowColumns] at a time.
inline constexpr std::int64_t kNarrowInner = 256;  // the contraction block of products (kernels.h)
inline constexpr std::int64_t kNarrowRows = 512;
inline constexpr std::int64_t kNarrowColumns = 1024;

// BF16, computed by pairs: a tile of a [kPairTileRows, kPairTileInner] and one of b [kPairTileInner, kPairTileColumns],
// two numbers in a word, in panels of 14 rows and of 32 columns with some words behind each; and a tile of sums.
inline constexpr std::int64_t kPairTileRows = 504;
inline constexpr std::int64_t kPairTileColumns = 768;
inline constexpr std::int64_t kPairTileInner = 1024;
inline constexpr std::int64_t pair_scratch_a() { return kPairTileRows * kPairTileInner / 2 + kPairTileRows / 14 * 32; }
inline constexpr std::int64_t pair_scratch_b() {
  return kPairTileColumns * kPairTileInner / 2 + kPairTileColumns / 32 * 16;
}

inline constexpr std::int64_t pair_scratch_elements() {
  return pair_scratch_a() + pair_scratch_b() + kPairTileRows * kPairTileColumns;
}

// Elements, F32, of a device of `threads` threads: those share what is for F16, and each has its own for BF16.
inline constexpr std::int64_t narrow_scratch_elements(std::int64_t threads) {
  return std::max(kNarrowRows * kNarrowInner + kNarrowInner * kNarrowColumns + kNarrowRows * kNarrowColumns,
                  threads * pair_scratch_elements());
}

}  // namespace trireme
