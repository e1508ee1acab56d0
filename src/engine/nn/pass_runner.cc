#include "engine/nn/pass_runner.h"

#include <array>

namespace trireme::nn {

using kernels::TensorView;
using model::FlowOp;
using plan::Home;
using plan::PlacedStep;
using plan::PlacedValue;

kernels::ActivationType activation_type(model::Activation activation) {
  switch (activation) {
    case model::Activation::kGeluTanh:
      return kernels::ActivationType::kGeluTanh;
    case model::Activation::kSilu:
      return kernels::ActivationType::kSilu;
    case model::Activation::kRelu:
      return kernels::ActivationType::kRelu;
  }
  TRIREME_CHECK(false, "activation {}", static_cast<int>(activation));
}

kernels::NormType norm_type(model::NormKind norm) {
  switch (norm) {
    case model::NormKind::kLayerNorm:
      return kernels::NormType::kLayerNorm;
    case model::NormKind::kRmsNorm:
      return kernels::NormType::kRmsNorm;
    case model::NormKind::kRmsNormOffset:
      return kernels::NormType::kRmsNormOffset;
  }
  TRIREME_CHECK(false, "norm {}", static_cast<int>(norm));
}

void PassRunner::run(model::FlowPass pass, const TakeBlock* take) {
  const std::vector<PlacedStep>& steps = unit_[pass].steps;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (!steps[i].step.by_block) {
      run(steps[i]);
      continue;
    }
    std::size_t end = i;
    while (end < steps.size() && steps[end].step.by_block) ++end;
    run_blocks(std::span(steps).subspan(i, end - i), take);
    i = end - 1;
  }
}

void PassRunner::run_blocks(std::span<const PlacedStep> steps, const TakeBlock* take) {
  const std::int64_t most = buffers_.loss.logits.rows;
  for (std::int64_t row = 0; row < context_.tokens(); row += most) {
    block_ = {.first_row = row,
              .rows = std::min(most, context_.tokens() - row),
              .first = row == 0,
              .last = row + most >= context_.tokens()};
    for (const PlacedStep& step : steps) {
      run(step);
      if (take == nullptr) continue;
      (*take)(row, view(step.writes.front()));  // the first step makes them
      break;
    }
  }
  block_ = {.rows = context_.tokens()};
}

// In the order of FlowOp.
PassRunner::Runner PassRunner::runner_of(FlowOp op) {
  static constexpr std::array kRunners = std::to_array<Runner>({
      &PassRunner::lookup,
      &PassRunner::add_positions,
      &PassRunner::linear,
      &PassRunner::add_bias,
      &PassRunner::norm,
      &PassRunner::norm_again,
      &PassRunner::head_norm,
      &PassRunner::square_sums,
      &PassRunner::norm_of_sums,
      &PassRunner::scale,
      &PassRunner::rotary,
      &PassRunner::attention,
      &PassRunner::activation,
      &PassRunner::dropout,
      &PassRunner::add,
      &PassRunner::row_maximum,
      &PassRunner::softmax,  // sums of exponentials, cross-entropy and its gradient
      &PassRunner::softmax,
      &PassRunner::softmax,
      &PassRunner::input_gradient,
      &PassRunner::weight_gradient,
      &PassRunner::bias_gradient,
      &PassRunner::norm_gradient,
      &PassRunner::head_norm_gradient,
      &PassRunner::norm_dots,
      &PassRunner::whole_norm_gradient,
      &PassRunner::scale,  // backward too
      &PassRunner::rotary_gradient,
      &PassRunner::attention_gradient,
      &PassRunner::activation_gradient,
      &PassRunner::dropout,  // backward too
      &PassRunner::sum_gradients,
      &PassRunner::lookup_gradient,
      &PassRunner::positions_gradient,
      &PassRunner::exchange,
      &PassRunner::exchange,
      &PassRunner::exchange,
      &PassRunner::exchange,
  });
  static_assert(kRunners.size() == model::kFlowOpCount, "an operation has no runner");
  return kRunners[static_cast<std::size_t>(op)];
}

TensorView PassRunner::view(const PlacedValue& value) const {
  switch (value.home) {
    case Home::kSaved: {
      const TensorView& saved = buffers_.saved[static_cast<std::size_t>(value.saved)];
      TRIREME_CHECK(!saved.empty(), "{} is not there", value.name);
      return saved;
    }
    case Home::kOutput:
      return buffers_.output;
    case Home::kInputGradient:
      return buffers_.input_gradient;
    case Home::kWorkspace: {
      const DType dtype = value.statistics ? wide_dtype(context_.dtype) : context_.dtype;
      Bytes offset = value.offset;
      if (value.in_parts) offset += Bytes{context_.first_row() * value.columns * dtype_size(dtype)};
      return context_.workspace.at(offset, value.rows, value.columns, dtype);
    }
    case Home::kLoss:
      return loss_view(value);
  }
  TRIREME_CHECK(false, "home {}", static_cast<int>(value.home));
}

// Of the block. Its terms lie behind each other, so that the two sums are one exchange.
TensorView PassRunner::loss_view(const PlacedValue& value) const {
  const LossBuffers& loss = buffers_.loss;
  const TensorView& terms = loss.row_terms;
  switch (value.loss) {
    case plan::LossValue::kLogits:
      return kernels::row_range(loss.logits, 0, block_.rows);
    case plan::LossValue::kRowMaxima:
      return kernels::column_range(kernels::row_range(terms, 0, 1), 0, block_.rows);
    case plan::LossValue::kRowSums:
      return kernels::make_view(terms.data + terms.columns * dtype_size(terms.dtype), terms.dtype, 1, 2 * block_.rows);
    case plan::LossValue::kLosses:
      return kernels::column_range(loss.losses, block_.first_row, block_.rows);
  }
  TRIREME_CHECK(false, "{} is none of the loss's", value.name);
}

std::vector<TensorView> PassRunner::parts(std::span<const PlacedValue> values) const {
  std::vector<TensorView> all;
  for (const PlacedValue& value : values) {
    const TensorView whole = view(value);
    std::int64_t begin = 0;
    for (const model::SplitBlock& block : value.blocks) {
      const std::int64_t columns = local_count(block) * block.piece;
      all.push_back(value.blocks.size() == 1 ? whole : kernels::column_range(whole, begin, columns));
      begin += columns;
    }
  }
  return all;
}

TensorView PassRunner::operand(const PlacedStep& s, const PlacedValue& value) const {
  const TensorView all = view(value);
  if (!s.step.by_block || value.home == Home::kLoss) return all;
  return kernels::row_range(all, block_.first_row, block_.rows);
}

bool PassRunner::input_first(const PlacedStep& s) const {
  const std::vector<model::Parameter>& all = operation(s).parameters;
  const auto found = std::ranges::find(all, s.step.parameters.front(), &model::Parameter::role);
  return found != all.end() && found->input_first;
}

DropoutMask PassRunner::mask(const PlacedStep& s) const {
  const model::Operation& o = operation(s);
  const std::int64_t columns = o.kind == model::OperationKind::kAttention ? 0 : context_.config.hidden;
  return DropoutMask(context_, o.dropout, o.probability, columns);
}

}  // namespace trireme::nn
