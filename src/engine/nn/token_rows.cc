#include "engine/nn/token_rows.h"

#include <algorithm>

namespace trireme::nn {

using kernels::ConstTensorView;
using kernels::TensorView;

namespace {

TensorView own_rows(const UnitContext& context, TensorView rows) {
  return kernels::row_range(rows, context.first_row(), context.widths.sequence_tokens);
}

}  // namespace

ConstTensorView all_rows(const UnitContext& context, ConstTensorView own) {
  if (!context.sequence_parallel()) return own;
  return all_rows_in(context, own, context.workspace.take(context.tokens(), own.columns, own.dtype));
}

ConstTensorView all_rows_in(const UnitContext& context, ConstTensorView own, TensorView place) {
  if (!context.sequence_parallel()) return own;
  TRIREME_CHECK(place.contiguous() && place.rows == context.tokens());
  context.kernels().copy(own, own_rows(context, place));
  context.rank.tensor.all_gather(context.rank.device.stream(), place.data, place.elements(), place.dtype)->wait();
  return place;
}

TensorView rows_to_sum(const UnitContext& context, TensorView own) {
  if (!context.sequence_parallel()) return own;
  return context.workspace.take(context.tokens(), own.columns, own.dtype);
}

TensorView sum_own_rows(const UnitContext& context, TensorView rows) {
  if (!context.sequence_parallel()) {
    sum_over_tensor_ranks(context, rows);
    return rows;
  }
  TRIREME_CHECK(rows.contiguous() && rows.rows == context.tokens());
  context.rank.tensor.reduce_scatter(context.rank.device.stream(), rows.data, rows.elements(), rows.dtype)->wait();
  return own_rows(context, rows);
}

std::vector<SequencePart> own_sequence_parts(const UnitContext& context) {
  std::vector<SequencePart> parts;
  for (std::int64_t row = 0; row < context.widths.sequence_tokens; row += parts.back().rows) {
    const std::int64_t position = (context.first_row() + row) % context.sequence;
    const std::int64_t rows = std::min(context.sequence - position, context.widths.sequence_tokens - row);
    parts.push_back({.begin = row, .rows = rows, .position = position});
  }
  return parts;
}

}  // namespace trireme::nn
