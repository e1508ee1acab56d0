#include "plan/workspace.h"

#include <algorithm>

#include "base/attention_tile.h"
#include "base/check.h"
#include "base/narrow_scratch.h"

namespace trireme::plan {
namespace {

Bytes sized(std::int64_t rows, std::int64_t columns, DType dtype) {
  return allocation_size(Bytes{checked_multiply(checked_multiply(rows, columns), dtype_size(dtype))});
}
Bytes tensor(std::int64_t rows, std::int64_t columns, const RunInputs& inputs) {
  return sized(rows, columns, inputs.compute);
}
Bytes scratch(std::int64_t rows, std::int64_t columns, const RunInputs& inputs) {
  return sized(rows, columns, state_dtype(inputs));
}

}  // namespace

std::int64_t logit_rows(const Batch& batch) { return std::min(kLogitRows, batch.micro_batch * batch.sequence); }

Bytes rotary_table_bytes(const model::Config& config, const Batch& batch, const RunInputs& inputs) {
  if (config.position != model::PositionKind::kRotary) return {};
  return scratch(batch.sequence, config.head_dim, inputs);
}

Bytes workspace_bytes(const model::Config& config, const Layout& layout, const Batch& batch, const RunInputs& inputs,
                      model::UnitKind unit, UnitPass pass) {
  const model::LocalWidths widths = local_widths(config, layout, batch);
  const Bytes hidden = tensor(widths.tokens, config.hidden, inputs);
  // Sequence parallelism: all rows of a tensor of the residual stream, gathered, or before they are scattered.
  const Bytes whole = layout.sequence_parallel ? hidden : Bytes{};
  switch (unit) {
    case model::UnitKind::kEmbedding:
      return pass == UnitPass::kBackwardInput ? Bytes{} : whole;
    case model::UnitKind::kDecoder: {
      if (pass == UnitPass::kForward) {
        return std::max(whole,
                        scratch(inputs.threads, attention_forward_scratch(batch.sequence, config.head_dim), inputs));
      }
      if (pass == UnitPass::kBackwardWeight) return whole;
      const Bytes core = scratch(inputs.threads, attention_backward_scratch(batch.sequence, config.head_dim), inputs);
      return std::max(hidden, tensor(widths.tokens, widths.heads * config.head_dim, inputs) + std::max(whole, core));
    }
    case model::UnitKind::kHead:
      // Of the norm output's gradient; what is gathered of the output lies in the same place, in a loss pass too.
      return pass == UnitPass::kBackwardInput ? hidden : Bytes{};
  }
  TRIREME_CHECK(false, "unit kind {}", static_cast<int>(unit));
}

Bytes kernel_scratch_bytes(const RunInputs& inputs) {
  return is_narrow(inputs.compute) ? scratch(1, narrow_scratch_elements(inputs.threads), inputs) : Bytes{};
}

Bytes norm_scratch_bytes() { return allocation_size(Bytes{kNormPiece / kScalarBlock * dtype_size(DType::kF64)}); }

Bytes workspace_bytes(const model::Config& config, const Layout& layout, const Batch& batch, const RunInputs& inputs,
                      int rank) {
  Bytes most = norm_scratch_bytes();
  const int stage = coordinates_of(layout, rank).pp;
  for (const Chunk& chunk : model_chunks(config, layout)) {
    if (chunk.stage != stage) continue;
    for (int unit = chunk.first_unit; unit < chunk.end_unit; ++unit) {
      for (UnitPass pass : {UnitPass::kForward, UnitPass::kBackwardInput, UnitPass::kBackwardWeight}) {
        most = std::max(most, workspace_bytes(config, layout, batch, inputs, model::unit_kind(config, unit), pass));
      }
    }
  }
  return rotary_table_bytes(config, batch, inputs) + kernel_scratch_bytes(inputs) + most;
}

}  // namespace trireme::plan
