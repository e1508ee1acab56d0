#include "engine/parallel/activation_store.h"

namespace trireme::parallel {

ActivationStore::ActivationStore(nn::RankContext& context, const RunPlan& run)
    : context_(context), run_(run), widths_(plan::local_widths(run.table.config, run.layout, run.batch)) {
  for (const plan::UnitProgram& unit : run.units) none_.emplace_back(unit.saved.size());
}

template <class Visit>
void ActivationStore::for_each_entry(int unit, model::ActivationGroup group, const Visit& visit) const {
  const std::vector<model::SavedActivation>& saved = run_.unit(unit).saved;
  for (std::size_t i = 0; i < saved.size(); ++i) {
    if (model::group_of(saved[i], run_.layout.recompute) == group) visit(i, saved[i].value);
  }
}

void ActivationStore::allocate(int unit, int micro_batch, model::ActivationGroup group) {
  Slot& slot = slots_[{unit, micro_batch}];
  slot.buffers.resize(run_.unit(unit).saved.size());
  slot.views.resize(slot.buffers.size());
  for_each_entry(unit, group, [&](std::size_t index, const model::FlowValue& value) {
    const model::ActivationShape shape = model::local_shape(value, widths_);
    const DType dtype = value.statistics ? plan::state_dtype(run_.inputs) : run_.inputs.compute;
    kernels::Buffer& buffer = slot.buffers[index];
    TRIREME_CHECK(buffer.empty(), "{} of unit {} exists already", value.name, unit);
    buffer = context_.arena.allocate(MemoryClass::kSavedActivations, value.name,
                                     Bytes{shape.rows * shape.columns * dtype_size(dtype)});
    slot.views[index] = kernels::make_view(buffer.data(), dtype, shape.rows, shape.columns);
    ++slot.allocated;
  });
}

void ActivationStore::free(int unit, int micro_batch, model::ActivationGroup group) {
  const auto found = slots_.find({unit, micro_batch});
  TRIREME_CHECK(found != slots_.end(), "unit {} of micro-batch {} has nothing to free", unit, micro_batch);
  Slot& slot = found->second;
  for_each_entry(unit, group, [&](std::size_t index, const model::FlowValue& value) {
    kernels::Buffer& buffer = slot.buffers[index];
    TRIREME_CHECK(!buffer.empty(), "{} of unit {} is not there", value.name, unit);
    buffer.release();
    slot.views[index] = {};
    --slot.allocated;
  });
  if (slot.allocated == 0) slots_.erase(found);
}

std::span<const kernels::TensorView> ActivationStore::views(int unit, int micro_batch) const {
  const auto found = slots_.find({unit, micro_batch});
  if (found != slots_.end()) return found->second.views;
  return none_[static_cast<std::size_t>(model::flow_class(run_.table.config, unit))];
}

kernels::TensorView ActivationStore::input(int unit, int micro_batch) const {
  return views(unit, micro_batch)[static_cast<std::size_t>(run_.unit(unit).input)];
}

kernels::TensorView ActivationStore::output_gradient(int unit, int micro_batch) const {
  return views(unit, micro_batch)[static_cast<std::size_t>(run_.unit(unit).output_gradient)];
}

}  // namespace trireme::parallel
