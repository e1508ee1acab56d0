#pragma once

// The arithmetic of reductions: the canonical order over ranks.

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.h"
#include "engine/comm/communicator.h"

namespace trireme::comm {

// Sums of F32, F64, BF16, F16, I32 and I64; maxima of F32 and F64 (InternalError otherwise).
void check_reduction(DType dtype, Reduction reduction);

// destination[e] = ((source 0 [e] + source 1 [e]) + source 2 [e]) + ... for e in `share`, in every destination;
// likewise the maximum. In the element type; sums of BF16 and F16 in F32, rounded once at the end. All are whole
// buffers; destinations may be sources. Integers wrap around.
void reduce_in_order(DType dtype, Reduction reduction, std::span<const std::byte* const> sources,
                     std::span<std::byte* const> destinations, Share share);
void reduce_in_order(DType dtype, Reduction reduction, std::span<const std::byte* const> sources,
                     std::byte* destination, Share share);

}  // namespace trireme::comm
