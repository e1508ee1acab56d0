#pragma once

// Runs a rank's program, instruction by instruction. It knows no strategy: order, allocation, recompute and the end of
// the step are all in the program.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "base/exact_sum.h"
#include "engine/optim/optimizer.h"
#include "engine/parallel/activation_store.h"
#include "engine/parallel/gradient_accumulator.h"
#include "engine/parallel/instruction_tracer.h"
#include "engine/parallel/rank_state.h"
#include "engine/parallel/run_plan.h"

namespace trireme::parallel {

struct StepInputs {
  std::int64_t step = 1;  // counts from 1
  double learning_rate = 0.0;
  optim::OptimizerConfig optimizer;
  // Of gradients in F16: a power of two, by which the gradients are larger until the update. Else none.
  std::optional<double> loss_scale = std::nullopt;
};

struct StepResult {
  double loss = 0.0;       // mean over the tokens of the global batch that bear one
  double grad_norm = 0.0;  // before clipping, of the loss itself
  double clip_factor = 1.0;
  bool left_out = false;    // a scaled gradient overflowed: weights and moments are as before
  double loss_scale = 1.0;  // what the gradients are multiplied by
};

class Executor {
 public:
  // The context, the plan and the timeline (may be null) must outlive it. A timeline that is switched on gets a span of
  // each instruction, of the time that the rank's thread spends in it.
  Executor(nn::RankContext& context, const RunPlan& run, telemetry::Timeline* timeline = nullptr);

  // With all weights that other ranks have updated there. Not while step() or evaluate() runs.
  RankState& state();
  const RunPlan& run() const { return run_; }

  // Token ids of one micro-batch ([micro_batch * sequence]) and the global numbers of its samples. A target of
  // kernels::kIgnoredTarget bears no loss (inputs.masked_targets).
  void load_micro_batch(int micro_batch, std::span<const std::int32_t> inputs, std::span<const std::int32_t> targets,
                        std::span<const std::uint64_t> samples);
  // One step over the loaded micro-batches. A loss or norm that is not finite: Error(kDiverged), weights unchanged; a
  // norm alone, under a loss scale above 1: the step is left out.
  // A global batch without a token that bears a loss: Error(kUsage).
  StepResult step(const StepInputs& inputs);

  // Sum of the losses of one micro-batch's tokens; no dropout, no gradient. Needs inputs.evaluation_micro_batches > 0.
  ExactSum evaluate(std::span<const std::int32_t> inputs, std::span<const std::int32_t> targets);
  // Logits of every token of one micro-batch, by blocks of rows, on the host in double.
  using TakeLogits = std::function<void(std::int64_t first_row, std::int64_t columns, const std::vector<double>&)>;
  void logits(std::span<const std::int32_t> inputs, const TakeLogits& take);

  // Called before each instruction: where the rank is.
  std::function<void(const plan::Instruction&)> before;
  // Called after each instruction: tests, planned faults.
  std::function<void(const plan::Instruction&)> observer;
  // Called with what each unit's pass is given, before it is given: where faults are planted.
  std::function<void(nn::UnitContext&, double& loss_scale)> fault;

 private:
  void run_program(const plan::RankProgram& program);
  void execute(const plan::Instruction& instruction);
  void execute_unit(const plan::Instruction& instruction);
  // Where a unit's output goes, or its input's gradient: to its neighbour, or to the boundary of the chunk.
  kernels::TensorView output_of(const plan::Instruction& instruction);
  kernels::TensorView input_gradient_of(const plan::Instruction& instruction);
  nn::UnitContext unit_context(const plan::Instruction& instruction);
  void add_losses();
  std::int64_t count_tokens();

  // Exchanges (executor_exchange.cc). Boundary buffers: of a chunk's output on its way to the next stage, of its
  // input's gradient on its way back.
  using BoundaryKey = std::tuple<int, int, bool>;  // unit, micro-batch, backward
  static BoundaryKey boundary_key(const plan::Instruction& i) { return {i.unit, i.micro_batch, i.backward}; }
  bool is_chunk_end(const plan::Instruction& instruction, bool backward) const;
  void allocate_boundary(const plan::Instruction& instruction);
  void free_boundary(const plan::Instruction& instruction);
  kernels::TensorView boundary(int unit, int micro_batch, bool backward);
  void send(const plan::Instruction& instruction, bool backward);
  void receive(const plan::Instruction& instruction, bool backward);
  int stage_of(int world_rank) const { return plan::coordinates_of(run_.layout, world_rank).pp; }
  int shard_of(const plan::Instruction& instruction) const { return plan::shard_unit_index(run_.step, instruction); }
  void reduce_tensor_partial(const plan::Instruction& instruction);
  void sum_tied(const plan::Instruction& instruction);
  void refresh_tied(const plan::Instruction& instruction);
  void sum_over(comm::Communicator& group, ExactSum& sum);

  // Gradients and weights along the data axis, and the update (executor_shards.cc).
  void open_gradient(const plan::Instruction& instruction);
  void reduce(const plan::Instruction& instruction);
  void reduce_gradients(kernels::TensorView gradients);
  void close_gradient(const plan::Instruction& instruction);
  void wait_for_reductions();
  void gather(const plan::Instruction& instruction);
  void release(const plan::Instruction& instruction);
  void gather_updated(const plan::Instruction& instruction);
  void await_weights(int shard_unit);
  void await_weights_of_unit(int unit);
  plan::Interval owned_part(TensorRef ref) const;  // of a tensor, in its shard unit's flat buffer; may be empty
  void gradient_norm();
  void update(const plan::Instruction& instruction);

  nn::RankContext& context_;
  const RunPlan& run_;
  RankState state_;
  ActivationStore activations_;
  GradientAccumulator gradients_;
  plan::BookingTable step_bookings_;
  plan::BookingTable evaluation_bookings_;
  plan::Coordinates at_;
  std::map<BoundaryKey, kernels::Buffer> boundaries_;
  std::unique_ptr<InstructionTracer> tracer_;                    // null: nobody asked for a timeline
  std::map<BoundaryKey, std::unique_ptr<comm::Request>> sends_;  // running, of boundaries; gone before their memory
  std::vector<std::unique_ptr<comm::Request>> reductions_;       // running; waited for before the norm
  // All-gathers of weights by shard unit, running; waited for before their first use.
  std::map<int, std::unique_ptr<comm::Request>> gathers_;
  std::vector<bool> accumulated_;  // by shard unit: micro-batches' sums have begun this step (reduce = microbatch)
  std::vector<std::vector<std::uint64_t>> samples_;  // by micro-batch
  std::vector<std::int64_t> counted_targets_;        // by micro-batch

  // Of the step at hand.
  StepInputs inputs_;
  bool evaluation_ = false;
  const TakeLogits* take_logits_ = nullptr;
  std::int64_t counted_tokens_ = 1;  // of the global batch, that bear a loss
  double loss_scale_ = 0.0;          // of each token's loss: 1 / counted_tokens_, times the step's loss scale
  ExactSum loss_sum_;
  StepResult result_;
};

}  // namespace trireme::parallel
