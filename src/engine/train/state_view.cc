#include "engine/train/state_view.h"

namespace trireme::train {

using kernels::ConstTensorView;
using kernels::TensorView;

TensorView state_view(parallel::RankState& state, plan::StateKind kind, int shard_unit, plan::Interval part) {
  switch (kind) {
    case plan::StateKind::kWeight:
      return state.updated_weights(shard_unit, part);
    case plan::StateKind::kFirstMoment:
      return state.first_moments(shard_unit, part);
    case plan::StateKind::kSecondMoment:
      return state.second_moments(shard_unit, part);
  }
  TRIREME_CHECK(false, "state kind {}", static_cast<int>(kind));
}

void store_state(kernels::Device& device, parallel::RankState& state, plan::StateKind kind, int shard_unit,
                 plan::Interval part, std::span<const float> values) {
  TRIREME_CHECK_EQ(std::ssize(values), part.length());
  if (kind != plan::StateKind::kWeight) return store(device, state_view(state, kind, shard_unit, part), values);
  store(device, state.weights(shard_unit, part), values);
  if (!state.has_master_weights() || !state.shard_unit(shard_unit).holds_moments) return;
  const plan::Interval owned = plan::common(part, state.owned(shard_unit));
  if (owned.length() == 0) return;
  store(device, state.updated_weights(shard_unit, owned),
        values.subspan(static_cast<std::size_t>(owned.begin - part.begin), static_cast<std::size_t>(owned.length())));
}

void store(kernels::Device& device, TensorView to, std::span<const float> values) {
  TRIREME_CHECK_EQ(std::ssize(values), to.columns);
  const Bytes bytes{to.columns * dtype_size(to.dtype)};
  if (to.dtype == DType::kF32) return device.copy_to_device(to.data, values.data(), bytes);
  if (to.dtype == DType::kF64) {
    const std::vector<double> wide(values.begin(), values.end());
    return device.copy_to_device(to.data, wide.data(), bytes);
  }
  std::vector<std::byte> rounded(static_cast<std::size_t>(bytes.count));
  convert_from_f32(to.dtype, values, rounded);
  device.copy_to_device(to.data, rounded.data(), bytes);
}

std::vector<float> load(kernels::Device& device, ConstTensorView from) {
  const std::vector<double> wide = kernels::to_host(device, from);
  return {wide.begin(), wide.end()};
}

}  // namespace trireme::train
