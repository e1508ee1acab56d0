#include "plan/workspace.h"

#include <algorithm>

#include "base/check.h"
#include "base/narrow_scratch.h"
#include "plan/unit_program.h"

namespace trireme::plan {
namespace {

Bytes sized(std::int64_t rows, std::int64_t columns, DType dtype) {
  return allocation_size(Bytes{checked_multiply(checked_multiply(rows, columns), dtype_size(dtype))});
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

Bytes kernel_scratch_bytes(const RunInputs& inputs) {
  return is_narrow(inputs.compute) ? scratch(1, narrow_scratch_elements(inputs.threads), inputs) : Bytes{};
}

Bytes norm_scratch_bytes() { return allocation_size(Bytes{kNormPiece / kScalarBlock * dtype_size(DType::kF64)}); }

Bytes workspace_bytes(const model::Config& config, const Layout& layout, const Batch& batch, const RunInputs& inputs,
                      int rank) {
  const std::vector<UnitProgram> units = make_unit_programs(config, layout, batch, inputs);
  Bytes most = norm_scratch_bytes();
  const int stage = coordinates_of(layout, rank).pp;
  for (const Chunk& chunk : model_chunks(config, layout)) {
    if (chunk.stage != stage) continue;
    for (int unit = chunk.first_unit; unit < chunk.end_unit; ++unit) {
      most = std::max(most, workspace_of(units[static_cast<std::size_t>(model::flow_class(config, unit))]));
    }
  }
  return workspace_bytes(config, batch, inputs, most);
}

Bytes workspace_bytes(const model::Config& config, const Batch& batch, const RunInputs& inputs, Bytes largest) {
  return rotary_table_bytes(config, batch, inputs) + kernel_scratch_bytes(inputs) + largest;
}

}  // namespace trireme::plan
