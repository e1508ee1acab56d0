#include "support/tiny_world.h"

#include "engine/train/run_world.h"
#include "engine/train/weights.h"
#include "support/tiny_tokens.h"

namespace trireme::testing {
namespace {

class RankRun {
 public:
  RankRun(const TinyRun& run, int rank_number, const comm::CommunicatorFactory& factory)
      : run_(run),
        rank_(env_, log_, kernels::make_cpu_device(1),
              parallel::make_run_plan(run.config, run.layout, run.batch,
                                      {.threads = 1,
                                       .compute = run.compute,
                                       .fp32_gradients = run.fp32_gradients,
                                       .evaluation_micro_batches = 0,
                                       .masked_targets = static_cast<bool>(run.ignored),
                                       .host_of = run.host_of},
                                      rank_number),
              {.seed = run.seed, .poison = run.poison}, factory) {
    train::initialise_weights(rank_.device(), rank_.plan(), run.seed, rank_.executor().state());
  }

  RankReport train(int steps, train::LayoutRecorder& recorder) {
    for (int step = 1; step <= steps; ++step) {
      load(step);
      rank_.communication().traffic.reset();
      const parallel::StepResult out =
          rank_.executor().step({.step = step,
                                 .learning_rate = run_.learning_rate,
                                 .optimizer = {.weight_decay = run_.weight_decay, .clip_norm = run_.clip_norm},
                                 .loss_scale = run_.loss_scale});
      recorder.record(rank_, out);
    }
    const parallel::RunPlan& plan = rank_.plan();
    return {.predicted = rank_.predicted(),
            .counted = rank_.counted(),
            .predicted_traffic = plan::predict_traffic(plan.table, plan.layout, plan.batch, plan.inputs, plan.rank),
            .counted_traffic = rank_.communication().traffic.counts()};
  }

 private:
  void load(int step) {
    const std::int64_t micro_batches = plan::micro_batches(run_.layout, run_.batch);
    const int dp = plan::coordinates_of(run_.layout, rank_.plan().rank).dp;
    for (std::int64_t m = 0; m < micro_batches; ++m) {
      const std::int64_t first = parallel::first_sample(run_.layout, run_.batch, step, dp, m);
      const TinyBatch batch = tiny_batch(run_, first);
      rank_.executor().load_micro_batch(static_cast<int>(m), batch.inputs, batch.targets, batch.samples);
    }
  }

  const TinyRun& run_;
  FakeEnv env_;
  MemoryLog log_;
  parallel::Rank rank_;
};

}  // namespace

WorldCurve train_world(const TinyRun& run, int steps) {
  const int size = run.layout.world();
  const std::unique_ptr<train::RunWorld> world = train::make_thread_run_world(size, Seconds{60});
  train::LayoutRecorder recorder;
  WorldCurve curve;
  curve.ranks.resize(static_cast<std::size_t>(size));
  train::run_ranks(*world, [&](int rank) {
    curve.ranks[static_cast<std::size_t>(rank)] = RankRun(run, rank, world->factory(rank)).train(steps, recorder);
  });
  const std::vector<train::StepValues> whole = recorder.whole().steps;
  for (const train::StepValues& step : whole) {
    curve.lines.push_back(format_hex(step.loss) + " " + format_hex(step.grad_norm));
  }
  curve.tensors = whole.back().tensors;
  return curve;
}

}  // namespace trireme::testing
