#pragma once

// The workspace: one slab a rank for what lives inside one unit's work: temporaries of the layers and scratch of the
// kernels. Its size is the largest need over the unit passes; the layers carve it from its start and must use exactly
// what is said here at the peak (a test compares the high-water mark of each pass).

#include <cstdint>

#include "base/units.h"
#include "plan/memory.h"

namespace trireme::plan {

// Rows of logits that exist at once, whatever the vocabulary. The same in every layout, and a multiple of the GEMM's
// contraction block, so that the head's weight gradient (a contraction over tokens) is cut at the same tokens
// everywhere.
inline constexpr std::int64_t kLogitRows = 256;
std::int64_t logit_rows(const Batch& batch);

enum class UnitPass { kForward, kBackwardInput, kBackwardWeight };

Bytes workspace_bytes(const model::Config& config, const Layout& layout, const Batch& batch, const RunInputs& inputs,
                      model::UnitKind unit, UnitPass pass);
// The gradient norm goes through the gradients in pieces of this many elements; scratch: one double a scalar block.
inline constexpr std::int64_t kNormPiece = 1 << 20;
Bytes norm_scratch_bytes();
// Cosines and sines of every position: [sequence, head_dim], at the start of the slab; none without rotary positions.
Bytes rotary_table_bytes(const model::Config& config, const Batch& batch, const RunInputs& inputs);
// What the kernels keep for products of narrow operands (base/narrow_scratch.h), behind that; none in F32 and F64.
Bytes kernel_scratch_bytes(const RunInputs& inputs);
// The whole slab of a rank: the rotary table, the kernels' scratch, and the largest of all passes of its units and of
// the norm's scratch.
Bytes workspace_bytes(const model::Config& config, const Layout& layout, const Batch& batch, const RunInputs& inputs,
                      int rank);

}  // namespace trireme::plan
