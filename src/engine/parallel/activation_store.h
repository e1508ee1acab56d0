#pragma once

// Saved activations of a rank while they exist: by unit and micro-batch, allocated and freed by group as the program
// says.

#include <array>
#include <map>
#include <utility>

#include "engine/nn/context.h"
#include "engine/parallel/run_plan.h"

namespace trireme::parallel {

class ActivationStore {
 public:
  ActivationStore(nn::RankContext& context, const RunPlan& run);

  void allocate(int unit, int micro_batch, model::ActivationGroup group);
  void free(int unit, int micro_batch, model::ActivationGroup group);
  // All views are empty where nothing is allocated.
  const nn::SavedViews& views(int unit, int micro_batch) const;
  bool empty() const { return slots_.empty(); }

 private:
  struct Slot {
    std::array<kernels::Buffer, model::kSavedCount> buffers;
    nn::SavedViews views;
    int allocated = 0;
  };
  template <class Visit>
  void for_each_entry(int unit, model::ActivationGroup group, const Visit& visit) const;

  nn::RankContext& context_;
  const RunPlan& run_;
  model::LocalWidths widths_;
  std::array<std::vector<model::SavedActivation>, 3> tables_;  // by unit kind
  std::map<std::pair<int, int>, Slot> slots_;
  nn::SavedViews none_;
};

}  // namespace trireme::parallel
