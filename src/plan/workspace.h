#pragma once

// The workspace: one slab a rank for what lives inside one unit's work: temporaries of the layers and scratch of the
// kernels, where the unit's program places them (plan/unit_program.h). Its size is the largest need over the passes.

#include <cstdint>

#include "base/units.h"
#include "plan/memory.h"

namespace trireme::plan {

// Rows of logits that exist at once, whatever the vocabulary. The same in every layout, and a multiple of the GEMM's
// contraction block, so that the head's weight gradient (a contraction over tokens) is cut at the same tokens
// everywhere.
inline constexpr std::int64_t kLogitRows = 256;
std::int64_t logit_rows(const Batch& batch);

// The gradient norm goes through the gradients in pieces of this many elements; scratch: one double a scalar block.
inline constexpr std::int64_t kNormPiece = 1 << 20;
Bytes norm_scratch_bytes();
// Cosines and sines of every position: [sequence, head_dim], at the start of the slab; none without rotary positions.
Bytes rotary_table_bytes(const model::Config& config, const Batch& batch, const RunInputs& inputs);
// What the kernels keep for products of narrow operands (base/narrow_scratch.h), behind that; none in F32 and F64.
Bytes kernel_scratch_bytes(const RunInputs& inputs);
// The whole slab of a rank: the rotary table, the kernels' scratch, and the largest of all passes of its units and of
// the norm's scratch; or with that largest given.
Bytes workspace_bytes(const model::Config& config, const Layout& layout, const Batch& batch, const RunInputs& inputs,
                      int rank);
Bytes workspace_bytes(const model::Config& config, const Batch& batch, const RunInputs& inputs, Bytes largest);

}  // namespace trireme::plan
