#pragma once

// The scratch of matrix products whose operands are BF16 or F16 on a backend that multiplies in F32: agreed here,
// since plan/ books what the kernels use. Operands are widened block by block (a [kNarrowRows, kNarrowInner], b
// [kNarrowInner, kNarrowColumns]), and a narrow result is summed in F32, a tile of [kNarrowRows, kNarrowColumns] at
// a time.

#include <cstdint>

namespace trireme {

inline constexpr std::int64_t kNarrowInner = 256;  // the contraction block of products (kernels.h)
inline constexpr std::int64_t kNarrowRows = 512;
inline constexpr std::int64_t kNarrowColumns = 1024;

// Elements, F32.
inline constexpr std::int64_t narrow_scratch_elements() {
  return kNarrowRows * kNarrowInner + kNarrowInner * kNarrowColumns + kNarrowRows * kNarrowColumns;
}

}  // namespace trireme
