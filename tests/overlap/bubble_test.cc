// How long a pipeline really waits: four stages whose passes are 20 ms of sleep, under every schedule, against the
// formula of the schedule and the planner's simulation.

#include <chrono>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "engine/train/rank_trainer.h"
#include "engine/train/run_checks.h"
#include "engine/train/run_world.h"
#include "plan/timed_schedule.h"
#include "support/verify_run.h"

namespace trireme::testing {
namespace {

using plan::ScheduleKind;

constexpr int kStages = 4;
constexpr double kNear = 0.02;  // that measured and computed waits must be
constexpr double kPass = 0.02;  // of a stage: forward, backward for the input, backward for the weights

struct Pipeline {
  ScheduleKind schedule;
  int interleave;
  int micro_batches;
};

// The part of the step that a stage waits, stages of one length (docs/algorithms/schedules.md).
double formula(const Pipeline& p) {
  const double ideal = 3.0 * p.micro_batches;  // in passes
  const double waits =
      p.schedule == ScheduleKind::kZeroBubbleH1 ? (kStages - 1) * 1.0 : (kStages - 1) * 3.0 / p.interleave;
  return waits / (waits + ideal);
}

double simulated(const Pipeline& p) {
  const std::vector<plan::ChunkTimes> times(
      static_cast<std::size_t>(kStages * p.interleave),
      {.forward = 1, .backward_input = 1, .backward_weight = 1, .send_activation = 0, .send_gradient = 0});
  const double span = plan::makespan(plan::timed_schedule(p.schedule, kStages, p.interleave, p.micro_batches, times));
  return 1.0 - 3.0 * p.micro_batches * p.interleave / span;
}

// Makes a chunk's passes as long as they are to be, by sleeping after the last instruction of each, and sums up what
// the rank is busy with.
class Stage {
 public:
  explicit Stage(const parallel::RunPlan& run) : run_(run) {}

  void begin() { last_ = begin_ = posix_env().now().count; }
  void after(const plan::Instruction& instruction) {
    if (ends_a_pass(instruction)) {
      std::this_thread::sleep_for(std::chrono::duration<double>(kPass / run_.layout.interleave));
    }
    const double now = posix_env().now().count;
    if (is_pass(instruction.op)) {
      busy_ += now - last_;
      end_ = now;
    }
    last_ = now;
  }
  double first() const { return begin_; }
  double end() const { return end_; }
  double busy() const { return busy_; }

 private:
  static bool is_pass(plan::Op op) {
    return op == plan::Op::kForward || op == plan::Op::kBackwardInput || op == plan::Op::kBackwardWeight;
  }
  bool ends_a_pass(const plan::Instruction& i) const {
    if (!is_pass(i.op)) return false;
    const plan::Chunk& chunk = run_.step.chunks[static_cast<std::size_t>(i.chunk)];
    if (i.op == plan::Op::kForward) return i.unit == chunk.end_unit - 1;
    // The embedding passes nothing on.
    return i.unit == (i.op == plan::Op::kBackwardInput ? std::max(chunk.first_unit, 1) : chunk.first_unit);
  }

  const parallel::RunPlan& run_;
  double begin_ = 0, last_ = 0, end_ = 0, busy_ = 0;
};

double measured(VerifyRun& files, const Pipeline& p) {
  const train::ResolvedRun run = files.resolved({{"layout.pp", std::to_string(kStages)},
                                                 {"layout.schedule", std::string(plan::schedule_name(p.schedule))},
                                                 {"layout.interleave", std::to_string(p.interleave)},
                                                 {"train.global_batch", std::to_string(p.micro_batches)}});
  const data::Sampler tokens = train::open_training(files.env(), run);
  const std::unique_ptr<train::RunWorld> world = train::make_thread_run_world(kStages, Seconds{60});
  std::vector<std::unique_ptr<Stage>> stages(kStages);
  train::run_ranks(*world, [&](int number) {
    std::unique_ptr<Stage>& stage = stages[static_cast<std::size_t>(number)];
    parallel::Executor* of_rank = nullptr;
    const train::RankHooks hooks{.executor = [&](int, parallel::Executor& executor) { of_rank = &executor; }};
    train::RankTrainer trainer(posix_env(), files.log(), run, number, kernels::make_cpu_device(1),
                               world->factory(number), tokens, nullptr, hooks);
    trainer.step(1);
    stage = std::make_unique<Stage>(of_rank->run());
    of_rank->observer = [&](const plan::Instruction& instruction) { stage->after(instruction); };
    world->factory(number)({"all", {0, 1, 2, 3}}, {})->barrier();
    stage->begin();
    trainer.step(2);
  });
  double begin = stages[0]->first(), end = 0, busy = 0;
  for (const std::unique_ptr<Stage>& stage : stages) {
    begin = std::min(begin, stage->first());
    end = std::max(end, stage->end());
    busy += stage->busy();
  }
  return 1.0 - busy / kStages / (end - begin);
}

// What else a machine does only adds to a wait: one that is as it must be is enough, of a few.
double shortest_measured(VerifyRun& files, const Pipeline& p) {
  double shortest = measured(files, p);
  for (int again = 0; again < 4 && shortest > formula(p) + kNear; ++again) {
    shortest = std::min(shortest, measured(files, p));
  }
  return shortest;
}

TEST(Bubble, IsThatOfTheFormulaAndOfTheSimulation) {
  VerifyRun files;
  model::Config config = files.config("llama");
  config.layers = 8;
  files.use_config(config);
  fmt::print("{:<12} {:>13} {:>9} {:>10} {:>9}\n", "schedule", "micro-batches", "formula", "simulated", "measured");
  for (const auto& [schedule, interleave] : {std::pair{ScheduleKind::kGpipe, 1},
                                             {ScheduleKind::kOneFOneB, 1},
                                             {ScheduleKind::kInterleaved, 2},
                                             {ScheduleKind::kZeroBubbleH1, 1}}) {
    for (int micro_batches : {4, 8, 16}) {
      const Pipeline pipeline{schedule, interleave, micro_batches};
      const double waited = shortest_measured(files, pipeline);
      fmt::print("{:<12} {:>13} {:>9.4f} {:>10.4f} {:>9.4f}\n", plan::schedule_name(schedule), micro_batches,
                 formula(pipeline), simulated(pipeline), waited);
      EXPECT_NEAR(waited, formula(pipeline), kNear);
      EXPECT_NEAR(waited, simulated(pipeline), kNear);
    }
  }
}

}  // namespace
}  // namespace trireme::testing
