#include "engine/parallel/rank_state.h"

#include <cmath>

#include "base/narrow_scratch.h"
#include "plan/workspace.h"

namespace trireme::parallel {
namespace {

using kernels::Buffer;
using kernels::TensorView;
using plan::StaticKind;

// Cosines and sines as transformers computes them: the angle in float32, from float32 frequencies.
std::vector<double> rotary_table(const model::Config& config, std::int64_t sequence) {
  const std::vector<double> frequencies = model::rotary_inverse_frequencies(config);
  const std::size_t half = frequencies.size();
  std::vector<double> table(static_cast<std::size_t>(sequence) * 2 * half);
  for (std::int64_t p = 0; p < sequence; ++p) {
    double* row = table.data() + static_cast<std::size_t>(p) * 2 * half;
    for (std::size_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(static_cast<float>(p) * static_cast<float>(frequencies[i]));
      row[i] = std::cos(angle);
      row[half + i] = std::sin(angle);
    }
  }
  return table;
}

}  // namespace

RankState::RankState(nn::RankContext& context, const RunPlan& run) : context_(context), run_(run) {
  units_.resize(run.step.shard_units.size());
  std::int64_t begin = 0;
  for (int index = 0; index < shard_unit_count(); ++index) {
    units_[static_cast<std::size_t>(index)].gradients_begin = begin;
    begin += plan::accumulator_elements(shard_unit(index), run.layout);
  }
  allocate();
  carve_workspace();

  const auto units = static_cast<std::size_t>(model::unit_count(run.table.config));
  weight_refs_.assign(units, std::vector<TensorRef>(model::kRoleCount));
  gradient_refs_ = weight_refs_;
  for (int index = 0; index < shard_unit_count(); ++index) {
    const plan::ShardUnit& shard = shard_unit(index);
    for (int t = 0; t < static_cast<int>(shard.tensors.size()); ++t) {
      const auto& local = shard.tensors[static_cast<std::size_t>(t)];
      const model::Parameter& parameter = run.table.parameters[static_cast<std::size_t>(local.parameter)];
      const model::Role role = shard.tied_head ? model::Role::kHeadWeight : parameter.role;
      const auto unit = static_cast<std::size_t>(shard.unit);
      gradient_refs_[unit][static_cast<std::size_t>(role)] = {index, t};
      if (shard.holds_weights) weight_refs_[unit][static_cast<std::size_t>(role)] = {index, t};
    }
  }
  const std::size_t head = units - 1;
  TensorRef& head_weight = weight_refs_[head][static_cast<std::size_t>(model::Role::kHeadWeight)];
  if (!head_weight.found()) {
    head_weight = weight_refs_[0][static_cast<std::size_t>(model::Role::kTokenEmbedding)];
  }
}

Buffer& RankState::slot(StaticKind kind, int shard_unit) {
  switch (kind) {
    case StaticKind::kStaging:
      break;
    case StaticKind::kCheckpointStaging:
      return checkpoint_staging_;
    case StaticKind::kWeights:
      return units_[static_cast<std::size_t>(shard_unit)].weights;
    case StaticKind::kGradients:
      return gradients_;
    case StaticKind::kFirstMoment:
      return units_[static_cast<std::size_t>(shard_unit)].first_moment;
    case StaticKind::kSecondMoment:
      return units_[static_cast<std::size_t>(shard_unit)].second_moment;
    case StaticKind::kMasterWeights:
      return units_[static_cast<std::size_t>(shard_unit)].master_weights;
    case StaticKind::kInputs:
      return inputs_;
    case StaticKind::kTargets:
      return targets_;
    case StaticKind::kEvaluationInputs:
      return evaluation_inputs_;
    case StaticKind::kEvaluationTargets:
      return evaluation_targets_;
    case StaticKind::kLogits:
      return logits_;
    case StaticKind::kRowTerms:
      return row_terms_;
    case StaticKind::kLosses:
      return losses_;
    case StaticKind::kWorkspace:
      return workspace_buffer_;
  }
  TRIREME_CHECK(false, "static buffer kind {}", static_cast<int>(kind));
}

void RankState::allocate() {
  for (const plan::StaticBuffer& wanted :
       plan::static_buffers(run_.table, run_.layout, run_.batch, run_.inputs, run_.rank)) {
    if (wanted.kind == StaticKind::kStaging) continue;  // the communicators', which are there already
    Buffer& buffer = slot(wanted.kind, wanted.shard_unit);
    buffer = context_.arena.allocate(wanted.memory_class, plan::static_kind_name(wanted.kind), wanted.bytes);
    if (!buffer.empty() && (wanted.shard_unit >= 0 || wanted.kind == StaticKind::kGradients)) {
      // Padding inside flat buffers is part of what is reduced and updated, so it starts as zero.
      const DType dtype = dtype_of(wanted.kind);
      const std::int64_t elements = wanted.bytes.count / dtype_size(dtype);
      context_.kernels().fill(kernels::make_view(buffer.data(), dtype, 1, elements), 0.0);
    }
  }
}

DType RankState::dtype_of(StaticKind kind) const {
  if (kind == StaticKind::kWeights) return dtype();
  return kind == StaticKind::kGradients ? gradient_dtype() : state_dtype();
}

void RankState::carve_workspace() {
  std::byte* start = workspace_buffer_.data();
  const Bytes table_bytes = plan::rotary_table_bytes(run_.table.config, run_.batch, run_.inputs);
  if (table_bytes.count > 0) {
    const std::int64_t sequence = run_.batch.sequence;
    const TensorView view = kernels::make_view(start, state_dtype(), sequence, run_.table.config.head_dim);
    const std::vector<double> table = rotary_table(run_.table.config, sequence);
    if (view.dtype == DType::kF64) {
      context_.device.copy_to_device(start, table.data(), Bytes{view.elements() * dtype_size(view.dtype)});
    } else {
      const std::vector<float> narrow(table.begin(), table.end());
      context_.device.copy_to_device(start, narrow.data(), Bytes{view.elements() * dtype_size(view.dtype)});
    }
    rotary_ = view;
  }
  const Bytes scratch_bytes = plan::kernel_scratch_bytes(run_.inputs);
  if (scratch_bytes.count > 0) {
    context_.kernels().use_scratch(
        kernels::make_view(start + table_bytes.count, state_dtype(), 1, narrow_scratch_elements(run_.inputs.threads)));
  }
  const Bytes before = table_bytes + scratch_bytes;
  workspace_ = nn::Workspace(start + before.count, workspace_buffer_.bytes() - before);
}

TensorView RankState::local_view(const Buffer& buffer, DType dtype, std::int64_t elements, TensorRef ref) const {
  TRIREME_CHECK(!buffer.empty(), "shard unit {} has no such buffer", ref.shard_unit);
  const plan::LocalTensor& local = shard_unit(ref.shard_unit).tensors[static_cast<std::size_t>(ref.tensor)];
  const bool matrix = local.shape.size() > 1;
  return kernels::make_view(buffer.data() + (elements + local.offset) * dtype_size(dtype), dtype,
                            matrix ? local.shape[0] : 1, matrix ? local.shape[1] : local.shape[0]);
}

TensorView RankState::weight(TensorRef ref) {
  if (!plan::shards_weights(run_.layout))
    return local_view(units_[static_cast<std::size_t>(ref.shard_unit)].weights, dtype(), 0, ref);
  const auto found = gathered_.find(ref.shard_unit);
  TRIREME_CHECK(found != gathered_.end(), "the weights of shard unit {} are not gathered", ref.shard_unit);
  return local_view(found->second, dtype(), 0, ref);
}

TensorView RankState::gradient(TensorRef ref, int micro_batch) {
  if (const auto open = open_.find({ref.shard_unit, micro_batch}); open != open_.end()) {
    return local_view(open->second, gradient_dtype(), 0, ref);
  }
  TRIREME_CHECK(!opens_gradients(), "no gradients of shard unit {}, micro-batch {} are open", ref.shard_unit,
                micro_batch);
  return local_view(gradients_, gradient_dtype(), units_[static_cast<std::size_t>(ref.shard_unit)].gradients_begin,
                    ref);
}

plan::Interval RankState::owned(int index) const {
  return plan::updated_part(shard_unit(index), run_.layout, plan::coordinates_of(run_.layout, run_.rank).dp);
}

plan::Interval RankState::kept(int index) const {
  return plan::kept_weights(shard_unit(index), run_.layout, plan::coordinates_of(run_.layout, run_.rank).dp);
}

plan::Interval RankState::place_of(TensorRef ref) const {
  const plan::LocalTensor& local = shard_unit(ref.shard_unit).tensors[static_cast<std::size_t>(ref.tensor)];
  return {local.offset, local.offset + local.elements()};
}

TensorView RankState::run(const Buffer& buffer, DType dtype, std::int64_t offset, std::int64_t begin,
                          plan::Interval part) {
  if (part.length() == 0) return kernels::make_view(static_cast<std::byte*>(nullptr), dtype, 1, 0);
  TRIREME_CHECK(part.begin >= begin && part.end >= part.begin, "elements {} to {} of a buffer that begins at {}",
                part.begin, part.end, begin);
  const std::int64_t first = offset + part.begin - begin;
  TRIREME_CHECK_LE((first + part.length()) * dtype_size(dtype), buffer.bytes().count);
  return kernels::make_view(buffer.data() + first * dtype_size(dtype), dtype, 1, part.length());
}

TensorView RankState::weights(int index, plan::Interval part) {
  return run(units_[static_cast<std::size_t>(index)].weights, dtype(), 0, kept(index).begin, part);
}
TensorView RankState::updated_weights(int index, plan::Interval part) {
  if (!has_master_weights()) return weights(index, part);
  return run(units_[static_cast<std::size_t>(index)].master_weights, state_dtype(), 0, owned(index).begin, part);
}
TensorView RankState::gradients(int index, plan::Interval part) {
  const bool sharded = plan::accumulator_elements(shard_unit(index), run_.layout) < shard_unit(index).elements;
  return run(gradients_, gradient_dtype(), units_[static_cast<std::size_t>(index)].gradients_begin,
             sharded ? owned(index).begin : 0, part);
}
TensorView RankState::first_moments(int index, plan::Interval part) {
  return run(units_[static_cast<std::size_t>(index)].first_moment, state_dtype(), 0, owned(index).begin, part);
}
TensorView RankState::second_moments(int index, plan::Interval part) {
  return run(units_[static_cast<std::size_t>(index)].second_moment, state_dtype(), 0, owned(index).begin, part);
}
TensorView RankState::bucket_gradients(const plan::Bucket& bucket) {
  const std::int64_t begin = units_[static_cast<std::size_t>(bucket.first)].gradients_begin;
  return run(gradients_, gradient_dtype(), begin, 0, {0, bucket.elements});
}

void RankState::hold_gathered(int index, Buffer buffer) {
  TRIREME_CHECK(gathered_.emplace(index, std::move(buffer)).second, "shard unit {} is gathered already", index);
}
void RankState::drop_gathered(int index) {
  TRIREME_CHECK(gathered_.erase(index) == 1, "shard unit {} is not gathered", index);
}
TensorView RankState::gathered(int index) {
  return run(gathered_.at(index), dtype(), 0, 0, {0, shard_unit(index).elements});
}

void RankState::hold_gradients(int index, int micro_batch, Buffer buffer) {
  TRIREME_CHECK(open_.emplace(std::pair(index, micro_batch), std::move(buffer)).second,
                "gradients of shard unit {}, micro-batch {} are open already", index, micro_batch);
}
void RankState::drop_gradients(int index, int micro_batch) {
  TRIREME_CHECK(open_.erase({index, micro_batch}) == 1, "no gradients of shard unit {}, micro-batch {} are open", index,
                micro_batch);
}
TensorView RankState::open_gradients(int index, int micro_batch) {
  return run(open_.at({index, micro_batch}), gradient_dtype(), 0, 0, {0, shard_unit(index).elements});
}

TensorRef RankState::weight_ref(int unit, model::Role role) const {
  return weight_refs_[static_cast<std::size_t>(unit)][static_cast<std::size_t>(role)];
}
TensorRef RankState::gradient_ref(int unit, model::Role role) const {
  return gradient_refs_[static_cast<std::size_t>(unit)][static_cast<std::size_t>(role)];
}

// The head's forward does without the projection, which ZeRO 3 then does not gather.
bool RankState::is_there(TensorRef ref) const {
  return !plan::shards_weights(run_.layout) || gathered_.count(ref.shard_unit) > 0;
}

nn::WeightViews RankState::weights_of(int unit) {
  nn::WeightViews views;
  for (int role = 0; role < model::kRoleCount; ++role) {
    const TensorRef ref = weight_ref(unit, static_cast<model::Role>(role));
    if (ref.found() && is_there(ref)) views[static_cast<model::Role>(role)] = weight(ref);
  }
  return views;
}

std::span<const std::int32_t> RankState::tokens(const Buffer& buffer, int micro_batch) const {
  if (buffer.empty()) return {};
  const std::int64_t count = run_.batch.micro_batch * run_.batch.sequence;
  const auto* first = reinterpret_cast<const std::int32_t*>(buffer.data()) + count * micro_batch;
  return {first, static_cast<std::size_t>(count)};
}
std::span<const std::int32_t> RankState::inputs(int micro_batch, bool evaluation) const {
  return tokens(evaluation ? evaluation_inputs_ : inputs_, micro_batch);
}
std::span<const std::int32_t> RankState::targets(int micro_batch, bool evaluation) const {
  return tokens(evaluation ? evaluation_targets_ : targets_, micro_batch);
}

void RankState::load_tokens(int micro_batch, bool evaluation, std::span<const std::int32_t> new_inputs,
                            std::span<const std::int32_t> new_targets) {
  const auto load = [&](const Buffer& buffer, std::span<const std::int32_t> ids) {
    if (buffer.empty()) return;
    const std::int64_t count = run_.batch.micro_batch * run_.batch.sequence;
    TRIREME_CHECK_EQ(static_cast<std::int64_t>(ids.size()), count);
    const Bytes bytes{count * dtype_size(DType::kI32)};
    context_.device.copy_to_device(buffer.data() + bytes.count * micro_batch, ids.data(), bytes);
  };
  load(evaluation ? evaluation_inputs_ : inputs_, new_inputs);
  load(evaluation ? evaluation_targets_ : targets_, new_targets);
}

nn::LossBuffers RankState::loss_buffers() {
  if (logits_.empty()) return {};
  const std::int64_t rows = plan::logit_rows(run_.batch);
  const DType dtype = state_dtype();
  const std::int64_t element = dtype_size(dtype);
  return {.logits = kernels::make_view(logits_.data(), dtype, rows, logits_.bytes().count / element / rows),
          .row_terms = kernels::make_view(row_terms_.data(), dtype, 3, rows),
          .losses = kernels::make_view(losses_.data(), dtype, 1, losses_.bytes().count / element)};
}

}  // namespace trireme::parallel
