#include "engine/parallel/gradient_accumulator.h"

namespace trireme::parallel {

GradientAccumulator::GradientAccumulator(RankState& state) : rank_(state) {
  for (int unit = 0; unit < state.shard_unit_count(); ++unit) {
    tensors_.emplace_back(state.shard_unit(unit).tensors.size());
  }
}

void GradientAccumulator::begin_step() {
  for (std::vector<Tensor>& unit : tensors_) unit.assign(unit.size(), Tensor{});
}

GradientAccumulator::Tensor& GradientAccumulator::tensor(TensorRef ref) {
  return tensors_[static_cast<std::size_t>(ref.shard_unit)][static_cast<std::size_t>(ref.tensor)];
}

nn::GradientSink::Target GradientAccumulator::UnitSink::open(model::Role role) {
  const TensorRef ref = owner_.rank_.gradient_ref(unit_, role);
  TRIREME_CHECK(ref.found(), "unit {} has no {}", unit_, model::role_name(role));
  Tensor& tensor = owner_.tensor(ref);
  TRIREME_CHECK(!tensor.open, "{} of unit {} is open already", model::role_name(role), unit_);
  tensor.open = true;
  const bool accumulate = tensor.written && !owner_.rank_.opens_gradients();
  return {.view = owner_.rank_.gradient(ref, micro_batch_), .accumulate = accumulate};
}

void GradientAccumulator::UnitSink::close(model::Role role) {
  Tensor& tensor = owner_.tensor(owner_.rank_.gradient_ref(unit_, role));
  TRIREME_CHECK(tensor.open, "{} of unit {} was not open", model::role_name(role), unit_);
  tensor = {.open = false, .written = true};
}

void GradientAccumulator::check_complete() const {
  for (std::size_t unit = 0; unit < tensors_.size(); ++unit) {
    for (std::size_t index = 0; index < tensors_[unit].size(); ++index) {
      TRIREME_CHECK(tensors_[unit][index].written && !tensors_[unit][index].open,
                    "shard unit {} tensor {} got no gradient this step", unit, index);
    }
  }
}

}  // namespace trireme::parallel
