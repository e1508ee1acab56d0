#include "engine/parallel/executor.h"

#include <cmath>
#include <numeric>

#include "engine/nn/unit_runner.h"

namespace trireme::parallel {

using plan::Instruction;
using plan::Op;

Executor::Executor(nn::RankContext& context, const RunPlan& run, telemetry::Timeline* timeline)
    : context_(context),
      run_(run),
      state_(context, run),
      activations_(context, run),
      gradients_(state_),
      step_bookings_(run.table, run.layout, run.batch, run.inputs, run.rank, run.step),
      evaluation_bookings_(run.table, run.layout, run.batch, run.inputs, run.rank, run.evaluation),
      at_(plan::coordinates_of(run.layout, run.rank)),
      tracer_(timeline == nullptr ? nullptr : std::make_unique<InstructionTracer>(*timeline, run.table.config)) {
  samples_.resize(static_cast<std::size_t>(plan::micro_batches(run.layout, run.batch)));
  counted_targets_.resize(samples_.size());
}

void Executor::load_micro_batch(int micro_batch, std::span<const std::int32_t> inputs,
                                std::span<const std::int32_t> targets, std::span<const std::uint64_t> samples) {
  TRIREME_CHECK_EQ(static_cast<std::int64_t>(samples.size()), run_.batch.micro_batch);
  state_.load_tokens(micro_batch, false, inputs, targets);
  samples_[static_cast<std::size_t>(micro_batch)].assign(samples.begin(), samples.end());
  const std::int64_t counted = nn::counted_targets(targets);
  TRIREME_CHECK(run_.inputs.masked_targets || counted == static_cast<std::int64_t>(targets.size()),
                "ignored targets in a run that was planned without");
  counted_targets_[static_cast<std::size_t>(micro_batch)] = counted;
}

// Replicas and micro-batches may hold different counts: the mean of the loss is over all of the step's.
std::int64_t Executor::count_tokens() {
  if (!run_.inputs.masked_targets) return plan::tokens_per_step(run_.batch);
  std::int64_t count = std::accumulate(counted_targets_.begin(), counted_targets_.end(), std::int64_t{0});
  if (context_.data.size() > 1) {
    context_.data
        .all_reduce(context_.device.stream(), reinterpret_cast<std::byte*>(&count), 1, DType::kI64,
                    comm::Reduction::kSum)
        ->wait();
  }
  if (count > 0) return count;
  throw Error(ExitCode::kUsage, "train", fmt::format("step {}", inputs_.step),
              "no token of the global batch bears a loss: every target is data.ignore",
              "another data.ignore, a larger train.global_batch, or other data");
}

StepResult Executor::step(const StepInputs& inputs) {
  inputs_ = inputs;
  evaluation_ = false;
  loss_sum_ = {};
  result_ = {.loss_scale = inputs.loss_scale.value_or(1.0)};
  counted_tokens_ = count_tokens();
  gradients_.begin_step();
  accumulated_.assign(static_cast<std::size_t>(state_.shard_unit_count()), false);
  run_program(run_.step);
  return result_;
}

ExactSum Executor::evaluate(std::span<const std::int32_t> inputs, std::span<const std::int32_t> targets) {
  TRIREME_CHECK(run_.inputs.evaluation_micro_batches > 0);
  evaluation_ = true;
  loss_sum_ = {};
  state_.load_tokens(0, true, inputs, targets);
  run_program(run_.evaluation);
  sum_over(context_.pipeline, loss_sum_);
  return loss_sum_;
}

void Executor::logits(std::span<const std::int32_t> inputs, const TakeLogits& take) {
  take_logits_ = &take;
  evaluate(inputs, inputs);  // the targets are not read
  take_logits_ = nullptr;
}

void Executor::run_program(const plan::RankProgram& program) {
  for (const Instruction& instruction : program.instructions) {
    if (before) before(instruction);
    if (tracer_ && tracer_->on()) {
      tracer_->run(instruction, [&] { execute(instruction); });
    } else {
      execute(instruction);
    }
    if (observer) observer(instruction);
  }
  context_.device.synchronize();
  TRIREME_CHECK(activations_.empty(), "activations left after the program");
}

void Executor::execute(const Instruction& instruction) {
  switch (instruction.op) {
    case Op::kAllocate:
      return activations_.allocate(instruction.unit, instruction.micro_batch, instruction.group);
    case Op::kFree:
      return activations_.free(instruction.unit, instruction.micro_batch, instruction.group);
    case Op::kForward:
    case Op::kRecompute:
    case Op::kBackwardInput:
    case Op::kBackwardWeight:
    case Op::kEvaluateLoss:
      return execute_unit(instruction);
    case Op::kAllocateBoundary:
      return allocate_boundary(instruction);
    case Op::kFreeBoundary:
      return free_boundary(instruction);
    case Op::kSendActivation:
      return send(instruction, false);
    case Op::kReceiveActivation:
      return receive(instruction, false);
    case Op::kSendGradient:
      return send(instruction, true);
    case Op::kReceiveGradient:
      return receive(instruction, true);
    case Op::kReduce:
      return reduce(instruction);
    case Op::kReduceTensorPartial:
      return reduce_tensor_partial(instruction);
    case Op::kSumTied:
      return sum_tied(instruction);
    case Op::kRefreshTied:
      return refresh_tied(instruction);
    case Op::kGradientNorm:
      return gradient_norm();
    case Op::kUpdate:
      return update(instruction);
    case Op::kOpenGradient:
      return open_gradient(instruction);
    case Op::kCloseGradient:
      return close_gradient(instruction);
    case Op::kGather:
      return gather(instruction);
    case Op::kRelease:
      return release(instruction);
    case Op::kGatherUpdated:
      return gather_updated(instruction);
  }
}

nn::UnitContext Executor::unit_context(const Instruction& instruction) {
  return {.rank = context_,
          .config = run_.table.config,
          .widths = plan::local_widths(run_.table.config, run_.layout, run_.batch),
          .unit = instruction.unit,
          .dtype = state_.dtype(),
          .sequences = run_.batch.micro_batch,
          .sequence = run_.batch.sequence,
          .samples = evaluation_ ? std::span<const std::uint64_t>{}
                                 : samples_[static_cast<std::size_t>(instruction.micro_batch)],
          .training = !evaluation_,
          .workspace = state_.workspace(),
          .inputs = state_.inputs(instruction.micro_batch, evaluation_),
          .targets = state_.targets(instruction.micro_batch, evaluation_),
          .rotary = state_.rotary(),
          .head_begin = run_.table.config.heads / run_.layout.tp * at_.tp,
          .vocabulary_begin = run_.table.config.vocabulary * at_.tp / run_.layout.tp};
}

void Executor::execute_unit(const Instruction& instruction) {
  nn::UnitContext unit = unit_context(instruction);
  loss_scale_ = (evaluation_ ? 1.0 : result_.loss_scale) / static_cast<double>(counted_tokens_);
  if (fault) fault(unit, loss_scale_);
  await_weights_of_unit(instruction.unit);
  const plan::UnitProgram& program = run_.unit(instruction.unit);
  const bool head = program.flow.kind == model::UnitKind::kHead;
  nn::PassBuffers buffers{.saved = activations_.views(instruction.unit, instruction.micro_batch),
                          .loss = state_.loss_buffers(),
                          .loss_scale = loss_scale_};
  if (instruction.op == Op::kForward && !head) buffers.output = output_of(instruction);
  if (instruction.op == Op::kBackwardInput) buffers.input_gradient = input_gradient_of(instruction);
  const nn::WeightViews weights = state_.weights_of(instruction.unit);
  if (instruction.op == Op::kEvaluateLoss && take_logits_ != nullptr) {
    nn::run_logits(unit, program, weights, buffers, [&](std::int64_t row, kernels::ConstTensorView block) {
      (*take_logits_)(row, block.columns, kernels::to_host(context_.device, block));
    });
  } else {
    GradientAccumulator::UnitSink sink(gradients_, instruction.unit, instruction.micro_batch);
    nn::run_pass(unit, program, *plan::pass_of(instruction.op), weights, buffers, &sink);
    if (instruction.op == Op::kEvaluateLoss || (head && instruction.op == Op::kBackwardInput)) add_losses();
  }
  context_.tensor.progress();
  context_.pipeline.progress();
  context_.data.progress();
}

kernels::TensorView Executor::output_of(const Instruction& instruction) {
  if (is_chunk_end(instruction, false)) return boundary(instruction.unit, instruction.micro_batch, false);
  return activations_.input(instruction.unit + 1, instruction.micro_batch);
}

kernels::TensorView Executor::input_gradient_of(const Instruction& instruction) {
  if (is_chunk_end(instruction, true)) return boundary(instruction.unit, instruction.micro_batch, true);
  return activations_.output_gradient(instruction.unit - 1, instruction.micro_batch);
}

void Executor::add_losses() {
  for (double loss : kernels::to_host(context_.device, state_.loss_buffers().losses)) loss_sum_.add(loss);
}

}  // namespace trireme::parallel
