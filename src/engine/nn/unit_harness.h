#pragma once

// Test support: one unit of a model on one tensor-parallel rank, with its own memory, so that tests can run its passes
// and read every number. Host memory, float64, reference kernels.

#include <map>
#include <memory>
#include <vector>

#include "base/fake_env.h"
#include "engine/nn/context.h"
#include "engine/nn/unit_runner.h"
#include "plan/layout.h"
#include "plan/slices.h"
#include "plan/workspace.h"

namespace trireme::nn {

// A sink that keeps every gradient in its own vector.
class VectorSink : public GradientSink {
 public:
  explicit VectorSink(const WeightViews& weights) : weights_(weights) {}
  Target open(model::Role role) override {
    const kernels::ConstTensorView& weight = weights_[role];
    std::vector<double>& values = gradients[role];
    const bool accumulate = !values.empty();
    values.resize(static_cast<std::size_t>(weight.elements()));
    return {.view = kernels::make_view(reinterpret_cast<std::byte*>(values.data()), DType::kF64, weight.rows,
                                       weight.columns),
            .accumulate = accumulate};
  }
  void close(model::Role role) override { ++closed[role]; }
  std::map<model::Role, std::vector<double>> gradients;
  std::map<model::Role, int> closed;

 private:
  const WeightViews& weights_;
};

class UnitHarness {
 public:
  // unit: index in the model. `tensor` is the tensor-parallel group of this rank.
  UnitHarness(const model::Config& config, int unit, std::int64_t sequences, std::int64_t sequence,
              comm::Communicator& tensor, bool sequence_parallel = false,
              model::Recompute recompute = model::Recompute::kNone);

  // One pass of the unit. `out` is of forward, or of backward-input the input's gradient.
  void run(model::FlowPass pass, kernels::TensorView out = {}, GradientSink* sink = nullptr, double loss_scale = 1.0);

  // Sets every weight by its global position: value(parameter, row, column).
  void set_weights(const std::function<double(const model::Parameter&, std::int64_t, std::int64_t)>& value);

  UnitContext context();
  kernels::TensorView view(std::vector<double>& values, std::int64_t rows, std::int64_t columns);

  model::Config config;
  model::ParameterTable table;
  plan::Layout layout;
  plan::Batch batch;
  int unit;
  int tp_index;
  std::map<model::Role, std::vector<double>> weight_values;
  std::map<model::Role, int> parameters;  // index in the table
  WeightViews weights;
  plan::UnitProgram program;
  std::map<std::string, std::vector<double>> saved_values;  // by name
  std::vector<kernels::TensorView> saved;                   // by index in program.saved
  std::vector<std::int32_t> inputs;
  std::vector<std::int32_t> targets;
  std::vector<std::uint64_t> samples;
  std::vector<double> rotary;
  LossBuffers loss;
  bool training = true;

 private:
  FakeEnv env_;
  MemoryLog log_;
  std::unique_ptr<kernels::Device> device_ = kernels::make_reference_device();
  kernels::Arena arena_{*device_, {}};
  std::unique_ptr<comm::Communicator> self_ = comm::make_self_communicator("self", 0);
  RankContext rank_;
  std::vector<double> workspace_memory_;
  Workspace workspace_{nullptr, {}};
  std::vector<double> logits_, row_terms_, losses_;
};

}  // namespace trireme::nn
