#pragma once

// Runs the steps of a pass of one unit over views: a member an operation (model/flow_steps.h), each a thin shape over
// the kernels and the communicator of the tensor axis. unit_runner.h is what others use.

#include <algorithm>
#include <span>
#include <vector>

#include "engine/nn/dropout.h"
#include "engine/nn/unit_runner.h"

namespace trireme::nn {

kernels::NormType norm_type(model::NormKind norm);
kernels::ActivationType activation_type(model::Activation activation);

class PassRunner {
 public:
  PassRunner(const UnitContext& context, const plan::UnitProgram& unit, const WeightViews& weights,
             const PassBuffers& buffers, GradientSink* sink)
      : context_(context),
        kernels_(context.kernels()),
        unit_(unit),
        weights_(weights),
        buffers_(buffers),
        sink_(sink),
        block_{.rows = context.tokens()} {}

  // take: of the loss's pass, of which then the logits alone are made.
  void run(model::FlowPass pass, const TakeBlock* take);

 private:
  using TensorView = kernels::TensorView;
  using ConstTensorView = kernels::ConstTensorView;
  using PlacedStep = plan::PlacedStep;
  using PlacedValue = plan::PlacedValue;
  using Runner = void (PassRunner::*)(const PlacedStep&);
  // A run of rows whose logits exist. All rows where there are none.
  struct Block {
    std::int64_t first_row = 0;
    std::int64_t rows = 0;
    bool first = true;
    bool last = true;
  };
  // Two values, up and gate, or one that holds gate and up, or up alone.
  struct GateAndUp {
    TensorView gate, up;
  };

  static Runner runner_of(model::FlowOp op);
  void run(const PlacedStep& s) { (this->*runner_of(s.step.op))(s); }
  void run_blocks(std::span<const PlacedStep> steps, const TakeBlock* take);

  TensorView view(const PlacedValue& value) const;
  TensorView loss_view(const PlacedValue& value) const;
  TensorView read(const PlacedStep& s, std::size_t i) const { return operand(s, s.reads[i]); }
  TensorView write(const PlacedStep& s, std::size_t i = 0) const { return operand(s, s.writes[i]); }
  // Its rows of the block, in a loop over blocks.
  TensorView operand(const PlacedStep& s, const PlacedValue& value) const;
  TensorView scratch(const PlacedStep& s) const { return view(s.scratch); }
  ConstTensorView weight(const PlacedStep& s, std::size_t i = 0) const {
    return i < s.step.parameters.size() ? weights_[s.step.parameters[i]] : ConstTensorView{};
  }
  const model::Operation& operation(const PlacedStep& s) const {
    return unit_.flow.operations[static_cast<std::size_t>(s.step.operation)];
  }
  bool input_first(const PlacedStep& s) const;
  DropoutMask mask(const PlacedStep& s) const;
  // The parts of a value that is cut by several blocks, or of several values of one block each.
  std::vector<TensorView> parts(std::span<const PlacedValue> values) const;
  std::int64_t local_count(const model::SplitBlock& block) const {
    return std::max<std::int64_t>(1, block.count / context_.widths.tp);
  }
  void move(TensorView from, TensorView to) {
    if (from.data != to.data) kernels_.copy(from, to);
  }

  // Forward.
  void lookup(const PlacedStep& s);
  void add_positions(const PlacedStep& s);
  void linear(const PlacedStep& s);
  void add_bias(const PlacedStep& s);
  void norm(const PlacedStep& s);
  void norm_again(const PlacedStep& s);
  void head_norm(const PlacedStep& s);
  void square_sums(const PlacedStep& s);
  void norm_of_sums(const PlacedStep& s);
  void scale(const PlacedStep& s);
  void rotary(const PlacedStep& s);
  void turn(const PlacedStep& s, bool inverse);
  kernels::AttentionShape attention_shape(const PlacedStep& s, const DropoutMask& mask) const;
  TensorView log_sum_exp(const PlacedValue& value) const;
  void attention(const PlacedStep& s);
  GateAndUp gate_and_up(std::span<const PlacedValue> values) const;
  void activation(const PlacedStep& s);
  void dropout(const PlacedStep& s);
  void add(const PlacedStep& s);
  void row_maximum(const PlacedStep& s);
  void softmax(const PlacedStep& s);
  // A head a row.
  TensorView by_head(const TensorView& x) const;
  // Of a number a token: as kernels take it.
  static TensorView row_of(const TensorView& sums);
  // Of all ranks, as their sums count them: key heads that ranks share are in several.
  std::int64_t columns_of_all(const TensorView& x) const { return x.columns * context_.widths.tp; }

  // Backward.
  void input_gradient(const PlacedStep& s);
  void weight_gradient(const PlacedStep& s);
  void bias_gradient(const PlacedStep& s);
  void norm_gradient(const PlacedStep& s);
  void head_norm_gradient(const PlacedStep& s);
  void norm_dots(const PlacedStep& s);
  void whole_norm_gradient(const PlacedStep& s);
  void rotary_gradient(const PlacedStep& s);
  void attention_gradient(const PlacedStep& s);
  void activation_gradient(const PlacedStep& s);
  void sum_gradients(const PlacedStep& s);
  void lookup_gradient(const PlacedStep& s);
  void positions_gradient(const PlacedStep& s);
  void exchange(const PlacedStep& s);

  const UnitContext& context_;
  kernels::Kernels& kernels_;
  const plan::UnitProgram& unit_;
  const WeightViews& weights_;
  const PassBuffers& buffers_;
  GradientSink* sink_;
  Block block_;
  GradientSink::Target block_target_;  // of a weight whose gradient is made block by block
};

}  // namespace trireme::nn
