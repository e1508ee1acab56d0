// The executor's exchanges with other ranks: stage boundaries, gradients, tied copies, scalars.

#include "engine/parallel/executor.h"

namespace trireme::parallel {

using kernels::TensorView;
using plan::Instruction;

bool Executor::is_chunk_end(const Instruction& instruction, bool backward) const {
  const std::vector<plan::Chunk>& chunks = evaluation_ ? run_.evaluation.chunks : run_.step.chunks;
  const plan::Chunk& chunk = chunks[static_cast<std::size_t>(instruction.chunk)];
  if (backward) return instruction.unit == chunk.first_unit;
  return instruction.unit == chunk.end_unit - 1;
}

void Executor::allocate_boundary(const Instruction& instruction) {
  const plan::Booking booking = (evaluation_ ? evaluation_bookings_ : step_bookings_)(instruction);
  TRIREME_CHECK_EQ(booking.buffers.size(), 1u);
  kernels::Buffer& buffer = boundaries_[boundary_key(instruction)];
  TRIREME_CHECK(buffer.empty(), "{} is there already", plan::describe(instruction));
  buffer = context_.arena.allocate(booking.memory_class, "stage boundary", booking.buffers.front());
}

void Executor::free_boundary(const Instruction& instruction) {
  if (const auto sent = sends_.find(boundary_key(instruction)); sent != sends_.end()) {
    sent->second->wait();
    sends_.erase(sent);
  }
  TRIREME_CHECK(boundaries_.erase(boundary_key(instruction)) == 1, "{} is not there", plan::describe(instruction));
}

TensorView Executor::boundary(int unit, int micro_batch, bool backward) {
  const auto found = boundaries_.find({unit, micro_batch, backward});
  TRIREME_CHECK(found != boundaries_.end(), "no boundary of unit {}, micro-batch {}", unit, micro_batch);
  const std::int64_t hidden = run_.table.config.hidden;
  const std::int64_t rows = plan::local_widths(run_.table.config, run_.layout, run_.batch).sequence_tokens;
  return kernels::make_view(found->second.data(), state_.dtype(), rows, hidden);
}

void Executor::send(const Instruction& instruction, bool backward) {
  const TensorView view = boundary(instruction.unit, instruction.micro_batch, backward);
  sends_[{instruction.unit, instruction.micro_batch, backward}] = context_.pipeline.send(
      context_.device.stream(), view.data, view.elements(), view.dtype, stage_of(instruction.peer));
}

void Executor::receive(const Instruction& instruction, bool backward) {
  const TensorView view = backward ? activations_.output_gradient(instruction.unit, instruction.micro_batch)
                                   : activations_.input(instruction.unit, instruction.micro_batch);
  context_.pipeline
      .receive(context_.device.stream(), view.data, view.elements(), view.dtype, stage_of(instruction.peer))
      ->wait();
}

void Executor::reduce_tensor_partial(const Instruction& instruction) {
  const int index = shard_of(instruction);
  const plan::ShardUnit& shard = state_.shard_unit(index);
  for (int tensor = 0; tensor < static_cast<int>(shard.tensors.size()); ++tensor) {
    const plan::LocalTensor& local = shard.tensors[static_cast<std::size_t>(tensor)];
    const model::Parameter& parameter = run_.table.parameters[static_cast<std::size_t>(local.parameter)];
    if (plan::tensor_gradient_state(parameter, run_.layout) != model::AxisState::kPartial) continue;
    // A split tensor is partial over the neighbours that share its key/value head, any other over all.
    comm::Communicator& group = parameter.split.split() ? context_.kv_replicas : context_.tensor;
    TRIREME_CHECK_EQ(group.size(), local.tensor_replicas);
    const TensorView view = state_.gradient({index, tensor}, instruction.micro_batch);
    group.all_reduce(context_.device.stream(), view.data, view.elements(), view.dtype, comm::Reduction::kSum)->wait();
  }
}

// On one stage the head's accumulator is added to the embedding's; else it travels to the embedding's stage. Of a shard
// the part that this rank has: both accumulators lie alike.
void Executor::sum_tied(const Instruction& instruction) {
  const TensorRef head = state_.gradient_ref(model::unit_count(run_.table.config) - 1, model::Role::kHeadWeight);
  const TensorRef embedding = state_.gradient_ref(0, model::Role::kTokenEmbedding);
  wait_for_reductions();
  const auto sum = [&] { return state_.gradients(embedding.shard_unit, owned_part(embedding)); };
  const auto copy = [&] { return state_.gradients(head.shard_unit, owned_part(head)); };
  if (instruction.peer < 0) return context_.kernels().add(sum(), copy());
  if (at_.pp == run_.layout.pp - 1) {
    const TensorView view = copy();
    context_.pipeline.send(context_.device.stream(), view.data, view.elements(), view.dtype, 0)->wait();
    return;
  }
  const TensorView own = sum();
  const TensorView arrived = kernels::make_view(boundaries_.at({0, -1, true}).data(), own.dtype, own.rows, own.columns);
  context_.pipeline
      .receive(context_.device.stream(), arrived.data, arrived.elements(), arrived.dtype, run_.layout.pp - 1)
      ->wait();
  context_.kernels().add(own, arrived);
}

// The updated embedding goes to its copy: all of it, or under ZeRO 3 the shard that either rank keeps.
void Executor::refresh_tied(const Instruction& instruction) {
  if (instruction.peer < 0) return;
  const bool owner = at_.pp == 0;
  const TensorRef ref = owner ? state_.weight_ref(0, model::Role::kTokenEmbedding)
                              : state_.weight_ref(model::unit_count(run_.table.config) - 1, model::Role::kHeadWeight);
  await_weights(ref.shard_unit);
  const plan::Interval part = plan::common(state_.place_of(ref), state_.kept(ref.shard_unit));
  const TensorView view = state_.weights(ref.shard_unit, part);
  const std::unique_ptr<comm::Request> passing =
      owner
          ? context_.pipeline.send(context_.device.stream(), view.data, view.elements(), view.dtype, run_.layout.pp - 1)
          : context_.pipeline.receive(context_.device.stream(), view.data, view.elements(), view.dtype, 0);
  passing->wait();
}

void Executor::sum_over(comm::Communicator& group, ExactSum& sum) {
  if (group.size() == 1) return;
  auto& words = sum.words();
  group
      .all_reduce(context_.device.stream(), reinterpret_cast<std::byte*>(words.data()),
                  static_cast<std::int64_t>(words.size()), DType::kI64, comm::Reduction::kSum)
      ->wait();
}

}  // namespace trireme::parallel
