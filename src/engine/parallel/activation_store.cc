#include "engine/parallel/activation_store.h"

namespace trireme::parallel {

ActivationStore::ActivationStore(nn::RankContext& context, const RunPlan& run)
    : context_(context), run_(run), widths_(plan::local_widths(run.table.config, run.layout, run.batch)) {
  for (model::UnitKind kind : {model::UnitKind::kEmbedding, model::UnitKind::kDecoder, model::UnitKind::kHead}) {
    tables_[static_cast<std::size_t>(kind)] = model::activation_table(run.table.config, kind);
  }
}

template <class Visit>
void ActivationStore::for_each_entry(int unit, model::ActivationGroup group, const Visit& visit) const {
  const model::UnitKind kind = model::unit_kind(run_.table.config, unit);
  for (const model::SavedActivation& entry : tables_[static_cast<std::size_t>(kind)]) {
    if (model::group_of(entry, run_.layout.recompute) == group) visit(entry);
  }
}

void ActivationStore::allocate(int unit, int micro_batch, model::ActivationGroup group) {
  Slot& slot = slots_[{unit, micro_batch}];
  for_each_entry(unit, group, [&](const model::SavedActivation& entry) {
    const model::ActivationShape shape = model::activation_shape(run_.table.config, entry, widths_);
    const DType dtype = entry.statistics ? plan::state_dtype(run_.inputs) : run_.inputs.compute;
    kernels::Buffer& buffer = slot.buffers[static_cast<std::size_t>(entry.name)];
    TRIREME_CHECK(buffer.empty(), "{} of unit {} exists already", model::saved_name(entry.name), unit);
    buffer = context_.arena.allocate(MemoryClass::kSavedActivations, model::saved_name(entry.name),
                                     Bytes{shape.rows * shape.columns * dtype_size(dtype)});
    slot.views[entry.name] = kernels::make_view(buffer.data(), dtype, shape.rows, shape.columns);
    ++slot.allocated;
  });
}

void ActivationStore::free(int unit, int micro_batch, model::ActivationGroup group) {
  const auto found = slots_.find({unit, micro_batch});
  TRIREME_CHECK(found != slots_.end(), "unit {} of micro-batch {} has nothing to free", unit, micro_batch);
  Slot& slot = found->second;
  for_each_entry(unit, group, [&](const model::SavedActivation& entry) {
    kernels::Buffer& buffer = slot.buffers[static_cast<std::size_t>(entry.name)];
    TRIREME_CHECK(!buffer.empty(), "{} of unit {} is not there", model::saved_name(entry.name), unit);
    buffer.release();
    slot.views[entry.name] = {};
    --slot.allocated;
  });
  if (slot.allocated == 0) slots_.erase(found);
}

const nn::SavedViews& ActivationStore::views(int unit, int micro_batch) const {
  const auto found = slots_.find({unit, micro_batch});
  return found == slots_.end() ? none_ : found->second.views;
}

}  // namespace trireme::parallel
