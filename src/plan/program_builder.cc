#include "plan/program_builder.h"

#include <algorithm>

#include "base/check.h"

namespace trireme::plan {

using model::ActivationGroup;
using model::UnitKind;

ProgramBuilder::ProgramBuilder(const model::ParameterTable& table, const Layout& layout, const Batch& batch, int rank)
    : table_(table),
      layout_(layout),
      micro_batches_(static_cast<int>(micro_batches(layout, batch))),
      rank_(rank),
      at_(coordinates_of(layout, rank)) {
  for (const Chunk& chunk : model_chunks(table.config, layout)) {
    if (chunk.stage == at_.pp) program_.chunks.push_back(chunk);
  }
  program_.shard_units = shard_units(table, layout, rank);
  program_.buckets = gradient_buckets(program_.shard_units, layout);
  complete_.resize(program_.buckets.size());
  for (const model::UnitFlow& flow : model::flows_by_class(table.config)) {
    Groups& has = has_group_.emplace_back();
    for (const model::SavedActivation& entry : model::saved_activations(flow)) {
      has[static_cast<std::size_t>(model::group_of(entry, layout.recompute))] = true;
    }
  }
}

void ProgramBuilder::emit(Op op, const Chunk& chunk, int unit, int micro_batch, bool tied_head) {
  program_.instructions.push_back(
      {.op = op, .micro_batch = micro_batch, .chunk = chunk.chunk, .unit = unit, .tied_head = tied_head});
}

void ProgramBuilder::groups(Op op, const Chunk& chunk, int unit, int micro_batch,
                            std::initializer_list<ActivationGroup> wanted) {
  for (ActivationGroup group : wanted) {
    if (!groups_of(unit)[static_cast<std::size_t>(group)]) continue;
    emit(op, chunk, unit, micro_batch);
    program_.instructions.back().group = group;
  }
}

void ProgramBuilder::boundary(Op op, const Chunk& chunk, int micro_batch, bool backward) {
  if (op == Op::kAllocateBoundary) free_sent(backward);
  emit(op, chunk, backward ? chunk.first_unit : chunk.end_unit - 1, micro_batch);
  program_.instructions.back().backward = backward;
}

void ProgramBuilder::free_sent(bool backward) {
  std::optional<Instruction>& due = sent_[backward ? 1 : 0];
  if (due) program_.instructions.push_back(*due);
  due.reset();
}

void ProgramBuilder::tied_boundary(Op op) {
  program_.instructions.push_back({.op = op, .unit = 0, .tied_head = true, .backward = true});
}

void ProgramBuilder::transfer(Op op, const Chunk& chunk, int micro_batch, int peer_stage) {
  const bool at_end = op == Op::kSendActivation || op == Op::kReceiveGradient;
  emit(op, chunk, at_end ? chunk.end_unit - 1 : chunk.first_unit, micro_batch);
  program_.instructions.back().peer = rank_of(layout_, {.tp = at_.tp, .pp = peer_stage, .dp = at_.dp});
}

void ProgramBuilder::send(Op op, const Chunk& chunk, int micro_batch, int peer_stage) {
  transfer(op, chunk, micro_batch, peer_stage);
  Instruction free = program_.instructions.back();
  free.op = Op::kFreeBoundary;
  free.backward = op == Op::kSendGradient;
  free.peer = -1;
  sent_[free.backward ? 1 : 0] = free;
}

void ProgramBuilder::add(const ChunkAction& action) {
  const Chunk& chunk = chunk_of(action.chunk);
  const int m = action.micro_batch;
  switch (action.kind) {
    case ActionKind::kForward:
      return forward(action.chunk, m, true);
    case ActionKind::kBackward:
      return backward(action.chunk, m, true, true);
    case ActionKind::kBackwardInput:
      return backward(action.chunk, m, true, false);
    case ActionKind::kBackwardWeight:
      return backward(action.chunk, m, false, true);
    case ActionKind::kReceiveActivation:
      groups(Op::kAllocate, chunk, chunk.first_unit, m, {ActivationGroup::kInput, ActivationGroup::kInputForWeight});
      return transfer(Op::kReceiveActivation, chunk, m, action.peer);
    case ActionKind::kSendActivation:
      return send(Op::kSendActivation, chunk, m, action.peer);
    case ActionKind::kReceiveGradient:
      groups(Op::kAllocate, chunk, chunk.end_unit - 1, m, {ActivationGroup::kOutputGradient});
      return transfer(Op::kReceiveGradient, chunk, m, action.peer);
    case ActionKind::kSendGradient:
      return send(Op::kSendGradient, chunk, m, action.peer);
  }
}

void ProgramBuilder::forward(int chunk_number, int micro_batch, bool keep) {
  const Chunk& chunk = chunk_of(chunk_number);
  std::vector<int> order;
  for (int unit = chunk.first_unit; unit < chunk.end_unit; ++unit) order.push_back(unit);
  const Pass pass = keep ? Pass::kForward : Pass::kEvaluation;
  gathered_to_ = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    gather_ahead(chunk, order, i, micro_batch, pass);
    forward_unit(chunk, order[i], micro_batch, keep);
    release(chunk, order[i], micro_batch, pass);
  }
}

void ProgramBuilder::forward_unit(const Chunk& chunk, int unit, int micro_batch, bool keep) {
  groups(Op::kAllocate, chunk, unit, micro_batch,
         {ActivationGroup::kKept, ActivationGroup::kKeptForWeight, ActivationGroup::kRemade,
          ActivationGroup::kRemadeForWeight});
  if (unit + 1 < chunk.end_unit) {
    groups(Op::kAllocate, chunk, unit + 1, micro_batch, {ActivationGroup::kInput, ActivationGroup::kInputForWeight});
  } else if (!last_of_model(chunk)) {
    boundary(Op::kAllocateBoundary, chunk, micro_batch, false);
  }
  emit(Op::kForward, chunk, unit, micro_batch);
  if (!keep && kind(unit) == UnitKind::kHead) emit(Op::kEvaluateLoss, chunk, unit, micro_batch);
  groups(Op::kFree, chunk, unit, micro_batch, {ActivationGroup::kRemade, ActivationGroup::kRemadeForWeight});
  if (!keep) {
    groups(Op::kFree, chunk, unit, micro_batch,
           {ActivationGroup::kKept, ActivationGroup::kKeptForWeight, ActivationGroup::kInput,
            ActivationGroup::kInputForWeight});
  }
}

void ProgramBuilder::evaluate(int chunk_number) {
  const Chunk& chunk = chunk_of(chunk_number);
  const int before = (at_.pp + layout_.pp - 1) % layout_.pp, after = (at_.pp + 1) % layout_.pp;
  if (!first_of_model(chunk)) {
    add({.kind = ActionKind::kReceiveActivation, .micro_batch = 0, .chunk = chunk_number, .peer = before});
  }
  forward(chunk_number, 0, false);
  if (!last_of_model(chunk)) {
    add({.kind = ActionKind::kSendActivation, .micro_batch = 0, .chunk = chunk_number, .peer = after});
  }
  free_sent(false);
}

void ProgramBuilder::backward(int chunk_number, int micro_batch, bool input, bool weight) {
  const Chunk& chunk = chunk_of(chunk_number);
  std::vector<int> order;
  for (int unit = chunk.end_unit - 1; unit >= chunk.first_unit; --unit) order.push_back(unit);
  gathered_to_ = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (input) {
      gather_ahead(chunk, order, i, micro_batch, Pass::kBackwardInput);
      backward_input(chunk, order[i], micro_batch);
      release(chunk, order[i], micro_batch, Pass::kBackwardInput);
    }
    if (weight) backward_weight(chunk, order[i], micro_batch);
  }
}

void ProgramBuilder::backward_input(const Chunk& chunk, int unit, int micro_batch) {
  if (kind(unit) == UnitKind::kEmbedding) return;  // nothing to pass on
  open_gradients(chunk, unit, micro_batch);
  const Groups& has = groups_of(unit);
  groups(Op::kAllocate, chunk, unit, micro_batch, {ActivationGroup::kRemade, ActivationGroup::kRemadeForWeight});
  if (has[static_cast<std::size_t>(ActivationGroup::kRemade)] ||
      has[static_cast<std::size_t>(ActivationGroup::kRemadeForWeight)]) {
    emit(Op::kRecompute, chunk, unit, micro_batch);
  }
  groups(Op::kAllocate, chunk, unit, micro_batch, {ActivationGroup::kGradient});
  if (unit > chunk.first_unit) {
    groups(Op::kAllocate, chunk, unit - 1, micro_batch, {ActivationGroup::kOutputGradient});
  } else {
    boundary(Op::kAllocateBoundary, chunk, micro_batch, true);
  }
  emit(Op::kBackwardInput, chunk, unit, micro_batch);
  groups(Op::kFree, chunk, unit, micro_batch,
         {ActivationGroup::kKept, ActivationGroup::kRemade, ActivationGroup::kInput});
  if (kind(unit) != UnitKind::kHead) return;
  groups(Op::kFree, chunk, unit, micro_batch,
         {ActivationGroup::kInputForWeight, ActivationGroup::kKeptForWeight, ActivationGroup::kRemadeForWeight});
  close_gradients(chunk, unit, micro_batch);
}

void ProgramBuilder::backward_weight(const Chunk& chunk, int unit, int micro_batch) {
  if (kind(unit) == UnitKind::kHead) return;  // done with its backward-input
  if (kind(unit) == UnitKind::kEmbedding) open_gradients(chunk, unit, micro_batch);
  emit(Op::kBackwardWeight, chunk, unit, micro_batch);
  groups(Op::kFree, chunk, unit, micro_batch,
         {ActivationGroup::kInputForWeight, ActivationGroup::kKeptForWeight, ActivationGroup::kRemadeForWeight,
          ActivationGroup::kOutputGradient, ActivationGroup::kGradient});
  close_gradients(chunk, unit, micro_batch);
}

std::vector<ProgramBuilder::ShardKey> ProgramBuilder::needed(int unit, Pass pass) const {
  if (pass == Pass::kBackwardInput && kind(unit) == UnitKind::kEmbedding) return {};
  std::vector<ShardKey> keys{{unit, false}};
  if (kind(unit) == UnitKind::kHead && table_.config.tied_embeddings && pass != Pass::kForward) {
    keys.push_back(layout_.pp > 1 ? ShardKey{unit, true} : ShardKey{0, false});
  }
  return keys;
}

void ProgramBuilder::gather_ahead(const Chunk& chunk, const std::vector<int>& order, std::size_t at, int micro_batch,
                                  Pass pass) {
  if (!shards_weights(layout_)) return;
  const std::size_t end = std::min(order.size(), at + 1 + static_cast<std::size_t>(layout_.prefetch));
  for (; gathered_to_ < end; ++gathered_to_) {
    for (const ShardKey& key : needed(order[gathered_to_], pass)) {
      if (users_[key]++ == 0) emit(Op::kGather, chunk, key.first, micro_batch, key.second);
    }
  }
}

void ProgramBuilder::release(const Chunk& chunk, int unit, int micro_batch, Pass pass) {
  if (!shards_weights(layout_)) return;
  for (const ShardKey& key : needed(unit, pass)) {
    if (--users_[key] == 0) emit(Op::kRelease, chunk, key.first, micro_batch, key.second);
  }
}

void ProgramBuilder::open_gradients(const Chunk& chunk, int unit, int micro_batch) {
  if (!opens_gradients(layout_)) return;
  for (const ShardUnit& shard : program_.shard_units) {
    if (shard.unit == unit) emit(Op::kOpenGradient, chunk, unit, micro_batch, shard.tied_head);
  }
}

bool ProgramBuilder::has_partial(const ShardUnit& shard) const {
  return std::any_of(shard.tensors.begin(), shard.tensors.end(), [&](const LocalTensor& tensor) {
    const model::Parameter& parameter = table_.parameters[static_cast<std::size_t>(tensor.parameter)];
    return tensor_gradient_state(parameter, layout_) == model::AxisState::kPartial;
  });
}

void ProgramBuilder::close_gradients(const Chunk& chunk, int unit, int micro_batch) {
  const bool each_micro_batch = opens_gradients(layout_);
  if (!each_micro_batch && micro_batch != micro_batches_ - 1) return;
  for (std::size_t i = 0; i < program_.shard_units.size(); ++i) {
    const ShardUnit& shard = program_.shard_units[i];
    if (shard.unit != unit) continue;
    if (has_partial(shard)) emit(Op::kReduceTensorPartial, chunk, unit, micro_batch, shard.tied_head);
    if (layout_.dp > 1) reduce_if_complete(chunk, micro_batch, static_cast<int>(i));
    if (each_micro_batch) emit(Op::kCloseGradient, chunk, unit, micro_batch, shard.tied_head);
  }
}

void ProgramBuilder::reduce_if_complete(const Chunk& chunk, int micro_batch, int shard) {
  for (std::size_t b = 0; b < program_.buckets.size(); ++b) {
    const Bucket& bucket = program_.buckets[b];
    if (shard < bucket.first || shard >= bucket.end || ++complete_[b] < bucket.end - bucket.first) continue;
    complete_[b] = 0;
    const ShardUnit& last = program_.shard_units[static_cast<std::size_t>(shard)];
    emit(Op::kReduce, chunk, last.unit, micro_batch, last.tied_head);
    program_.instructions.back().bucket = static_cast<int>(b);
  }
}

void ProgramBuilder::end_of_step() {
  free_sent(false);
  free_sent(true);
  const Chunk none{.stage = at_.pp, .chunk = -1};
  const std::vector<int> tied = tied_group_of(table_.config, layout_, rank_);
  const bool in_tied_group = std::find(tied.begin(), tied.end(), rank_) != tied.end();
  const int other = !in_tied_group ? -1 : rank_ == tied[0] ? tied[1] : tied[0];
  const bool tied_here = table_.config.tied_embeddings && (layout_.pp == 1 || in_tied_group);
  if (tied_here) {
    const bool receives = in_tied_group && rank_ == tied[0];
    if (receives) tied_boundary(Op::kAllocateBoundary);
    emit(Op::kSumTied, none, -1, -1);
    program_.instructions.back().peer = other;
    if (receives) tied_boundary(Op::kFreeBoundary);
  }
  emit(Op::kGradientNorm, none, -1, -1);
  for (const ShardUnit& shard : program_.shard_units) {
    if (shard.holds_moments) emit(Op::kUpdate, none, shard.unit, -1);
  }
  if (layout_.dp > 1 && (layout_.zero == 1 || layout_.zero == 2)) {
    for (const ShardUnit& shard : program_.shard_units) {
      if (shard.holds_moments) emit(Op::kGatherUpdated, none, shard.unit, -1);
    }
  }
  if (tied_here && layout_.pp > 1) {
    emit(Op::kRefreshTied, none, -1, -1);
    program_.instructions.back().peer = other;
  }
}

}  // namespace trireme::plan
