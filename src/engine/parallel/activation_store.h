#pragma once

// Saved activations of a rank while they exist: by unit and micro-batch, allocated and freed by group as the program
// says.

#include <map>
#include <span>
#include <utility>
#include <vector>

#include "engine/nn/context.h"
#include "engine/parallel/run_plan.h"

namespace trireme::parallel {

class ActivationStore {
 public:
  ActivationStore(nn::RankContext& context, const RunPlan& run);

  void allocate(int unit, int micro_batch, model::ActivationGroup group);
  void free(int unit, int micro_batch, model::ActivationGroup group);
  // By index in UnitProgram::saved; empty where nothing is allocated.
  std::span<const kernels::TensorView> views(int unit, int micro_batch) const;
  // The unit's input, and its output's gradient, which other units write.
  kernels::TensorView input(int unit, int micro_batch) const;
  kernels::TensorView output_gradient(int unit, int micro_batch) const;
  bool empty() const { return slots_.empty(); }

 private:
  struct Slot {
    std::vector<kernels::Buffer> buffers;  // by index in UnitProgram::saved
    std::vector<kernels::TensorView> views;
    int allocated = 0;
  };
  template <class Visit>
  void for_each_entry(int unit, model::ActivationGroup group, const Visit& visit) const;

  nn::RankContext& context_;
  const RunPlan& run_;
  model::LocalWidths widths_;
  std::map<std::pair<int, int>, Slot> slots_;
  std::vector<std::vector<kernels::TensorView>> none_;  // by model::flow_class
};

}  // namespace trireme::parallel
