// The executor's work along the data axis: gradients are summed, by bucket or for each micro-batch; weights are
// gathered from their owners; each owner updates its part.

#include <cmath>
#include <limits>

#include "engine/parallel/executor.h"
#include "plan/workspace.h"

namespace trireme::parallel {

using kernels::TensorView;
using plan::Instruction;
using plan::Interval;

RankState& Executor::state() {
  for (const auto& [unit, gather] : gathers_) gather->wait();
  gathers_.clear();
  return state_;
}

void Executor::open_gradient(const Instruction& instruction) {
  const plan::Booking booking = step_bookings_(instruction);
  TRIREME_CHECK_EQ(booking.buffers.size(), 1u);
  state_.hold_gradients(
      shard_of(instruction), instruction.micro_batch,
      context_.arena.allocate(booking.memory_class, "gradients of a micro-batch", booking.buffers.front()));
}

// The sum over ranks: whole on every rank, or (ZeRO) each owner its part of the one shard unit that these are of.
void Executor::reduce_gradients(TensorView gradients) {
  const Stream stream = context_.device.stream();
  reductions_.push_back(
      run_.layout.zero > 0 ? context_.data.reduce_scatter(stream, gradients.data, gradients.elements(), gradients.dtype)
                           : context_.data.all_reduce(stream, gradients.data, gradients.elements(), gradients.dtype,
                                                      comm::Reduction::kSum));
}

void Executor::reduce(const Instruction& instruction) {
  const plan::Bucket& bucket = run_.step.buckets[static_cast<std::size_t>(instruction.bucket)];
  const bool open = state_.opens_gradients();
  if (run_.layout.zero == 0 && !open) {
    reduce_gradients(state_.bucket_gradients(bucket));
  } else {
    for (int unit = bucket.first; unit < bucket.end; ++unit) {
      reduce_gradients(open ? state_.open_gradients(unit, instruction.micro_batch)
                            : state_.gradients(unit, {0, state_.shard_unit(unit).elements}));
    }
  }
  if (!run_.layout.overlap) wait_for_reductions();
}

void Executor::close_gradient(const Instruction& instruction) {
  wait_for_reductions();
  const int unit = shard_of(instruction);
  const Interval owned = state_.owned(unit);
  const TensorView open = state_.open_gradients(unit, instruction.micro_batch);
  const TensorView summed = kernels::column_range(open, owned.begin, owned.length());
  const TensorView sum = state_.gradients(unit, owned);
  if (accumulated_[static_cast<std::size_t>(unit)]) {
    context_.kernels().add(sum, summed);
  } else {
    context_.kernels().copy(summed, sum);
  }
  accumulated_[static_cast<std::size_t>(unit)] = true;
  context_.device.synchronize();  // the buffer goes away
  state_.drop_gradients(unit, instruction.micro_batch);
}

void Executor::wait_for_reductions() {
  for (const std::unique_ptr<comm::Request>& reduction : reductions_) reduction->wait();
  reductions_.clear();
}

void Executor::gather(const Instruction& instruction) {
  const plan::Booking booking = (evaluation_ ? evaluation_bookings_ : step_bookings_)(instruction);
  TRIREME_CHECK_EQ(booking.buffers.size(), 1u);
  const int unit = shard_of(instruction);
  state_.hold_gathered(unit,
                       context_.arena.allocate(booking.memory_class, "gathered weights", booking.buffers.front()));
  const Interval own = state_.kept(unit);
  const TensorView whole = state_.gathered(unit);
  context_.kernels().copy(state_.weights(unit, own), kernels::column_range(whole, own.begin, own.length()));
  gathers_[unit] = context_.data.all_gather(context_.device.stream(), whole.data, whole.elements(), whole.dtype);
}

void Executor::release(const Instruction& instruction) {
  const int unit = shard_of(instruction);
  await_weights(unit);
  context_.device.synchronize();  // whoever reads them
  state_.drop_gathered(unit);
}

void Executor::gather_updated(const Instruction& instruction) {
  const int unit = shard_of(instruction);
  const TensorView whole = state_.weights(unit, {0, state_.shard_unit(unit).elements});
  gathers_[unit] = context_.data.all_gather(context_.device.stream(), whole.data, whole.elements(), whole.dtype);
  if (!run_.layout.overlap) await_weights(unit);
}

void Executor::await_weights(int shard_unit) {
  const auto running = gathers_.find(shard_unit);
  if (running == gathers_.end()) return;
  running->second->wait();
  gathers_.erase(running);
}

void Executor::await_weights_of_unit(int unit) {
  if (gathers_.empty()) return;
  for (int role = 0; role < model::kRoleCount; ++role) {
    const TensorRef ref = state_.weight_ref(unit, static_cast<model::Role>(role));
    if (ref.found()) await_weights(ref.shard_unit);
  }
}

Interval Executor::owned_part(TensorRef ref) const {
  return plan::common(state_.place_of(ref), state_.owned(ref.shard_unit));
}

void Executor::gradient_norm() {
  wait_for_reductions();
  gradients_.check_complete();
  nn::Workspace& workspace = state_.workspace();
  const TensorView scratch = workspace.at(Bytes{}, 1, plan::kNormPiece / plan::kScalarBlock, DType::kF64);
  ExactSum squares;
  for (int index = 0; index < state_.shard_unit_count(); ++index) {
    const plan::ShardUnit& shard = state_.shard_unit(index);
    if (!shard.holds_moments) continue;  // a tied head's part is in the embedding's sum already
    for (int tensor = 0; tensor < static_cast<int>(shard.tensors.size()); ++tensor) {
      // Of tensor ranks that hold the same slice (neighbours), the first counts it.
      if (at_.tp % shard.tensors[static_cast<std::size_t>(tensor)].tensor_replicas != 0) continue;
      const Interval part = owned_part({index, tensor});
      if (part.length() == 0) continue;
      optim::add_squares(context_.device, state_.gradients(index, part), plan::kNormPiece, scratch, squares);
    }
  }
  if (run_.layout.zero > 0) sum_over(context_.data, squares);
  sum_over(context_.tensor, squares);
  sum_over(context_.pipeline, squares);
  sum_over(context_.data, loss_sum_);
  sum_over(context_.pipeline, loss_sum_);
  result_.loss = loss_sum_.value() / static_cast<double>(counted_tokens_);
  result_.grad_norm = std::sqrt(squares.value()) / result_.loss_scale;
  const bool overflowed = std::isfinite(result_.loss) && !std::isfinite(result_.grad_norm);
  if (overflowed && result_.loss_scale > 1.0) {
    result_.left_out = true;
    result_.grad_norm = std::numeric_limits<double>::infinity();
    return;
  }
  result_.clip_factor = optim::clip_factor(inputs_.optimizer, result_.grad_norm);
  if (!std::isfinite(result_.loss) || !std::isfinite(result_.grad_norm)) {
    throw Error(ExitCode::kDiverged, "train", fmt::format("step {}", inputs_.step),
                fmt::format("loss {} and gradient norm {} are not both finite; weights are those of the step before",
                            result_.loss, result_.grad_norm),
                "lower optimizer.learning_rate, lengthen warm-up, or clip");
  }
}

void Executor::update(const Instruction& instruction) {
  if (result_.left_out) return;
  const int index = shard_of(instruction);
  const plan::ShardUnit& shard = state_.shard_unit(index);
  for (int tensor = 0; tensor < static_cast<int>(shard.tensors.size()); ++tensor) {
    const Interval part = owned_part({index, tensor});
    if (part.length() == 0) continue;
    const int parameter = shard.tensors[static_cast<std::size_t>(tensor)].parameter;
    optim::adamw_update(context_.kernels(),
                        {.config = inputs_.optimizer,
                         .learning_rate = inputs_.learning_rate,
                         .step = inputs_.step,
                         .gradient_scale = result_.clip_factor / result_.loss_scale},
                        run_.table.parameters[static_cast<std::size_t>(parameter)].decay,
                        state_.updated_weights(index, part), state_.gradients(index, part),
                        state_.first_moments(index, part), state_.second_moments(index, part),
                        state_.has_master_weights() ? state_.weights(index, part) : TensorView{});
  }
}

}  // namespace trireme::parallel
