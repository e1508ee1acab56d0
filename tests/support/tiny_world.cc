#include "support/tiny_world.h"

#include <bit>
#include <cmath>
#include <exception>
#include <thread>

#include "base/check.h"
#include "engine/train/weights.h"
#include "support/tiny_tokens.h"

namespace trireme::testing {
namespace {

// Puts a rank's local tensor where it belongs in the whole one.
void place(std::map<std::string, std::vector<float>>& whole, const model::Parameter& parameter,
           const plan::LocalTensor& local, const std::vector<float>& values) {
  std::vector<float>& tensor = whole[parameter.name];
  if (tensor.empty()) tensor.assign(static_cast<std::size_t>(parameter.elements()), std::nanf(""));
  std::size_t next = 0;
  plan::for_each_element(plan::cut_of(parameter, local.intervals), [&](std::int64_t row, std::int64_t column) {
    float& element = tensor[static_cast<std::size_t>(row * parameter.columns() + column)];
    const float value = values[next++];
    TRIREME_CHECK(std::isnan(element) || std::bit_cast<std::uint32_t>(element) == std::bit_cast<std::uint32_t>(value),
                  "{}: two ranks hold other bits of element {}, {}", parameter.name, row, column);
    element = value;
  });
}

std::vector<float> floats_of(kernels::Device& device, kernels::ConstTensorView view) {
  TRIREME_CHECK(view.dtype == DType::kF32);
  std::vector<float> values(static_cast<std::size_t>(view.elements()));
  device.copy_to_host(values.data(), view.data, Bytes{view.elements() * 4});
  return values;
}

struct RankResult {
  std::vector<std::string> lines;
  RankReport report;
  std::vector<std::tuple<int, plan::LocalTensor, std::vector<float>, std::vector<float>>> tensors;
  std::exception_ptr error;
};

class RankRun {
 public:
  RankRun(const TinyRun& run, int rank_number, comm::ThreadWorld& world)
      : run_(run),
        rank_(
            env_, log_, kernels::make_cpu_device(1),
            parallel::make_run_plan(run.config, run.layout, run.batch,
                                    {.threads = 1, .compute = run.compute, .evaluation_micro_batches = 0}, rank_number),
            {.seed = run.seed, .poison = run.poison}, world) {
    train::initialise_weights(rank_.device(), rank_.plan(), run.seed, rank_.executor().state());
  }

  void train(int steps, RankResult& result) {
    for (int step = 1; step <= steps; ++step) {
      load(step);
      rank_.traffic().reset();
      const parallel::StepResult out =
          rank_.executor().step({.step = step,
                                 .learning_rate = run_.learning_rate,
                                 .optimizer = {.weight_decay = run_.weight_decay, .clip_norm = run_.clip_norm}});
      result.lines.push_back(format_hex(out.loss) + " " + format_hex(out.grad_norm));
    }
    const parallel::RunPlan& plan = rank_.plan();
    result.report = {
        .predicted = rank_.predicted(),
        .counted = rank_.counted(),
        .predicted_traffic = plan::predict_traffic(plan.table, plan.layout, plan.batch, plan.inputs, plan.rank),
        .counted_traffic = rank_.traffic().counts()};
    collect(result);
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
  void collect(RankResult& result) {
    parallel::RankState& state = rank_.executor().state();
    for (int unit = 0; unit < state.shard_unit_count(); ++unit) {
      const plan::ShardUnit& shard = state.shard_unit(unit);
      if (shard.tied_head) continue;
      for (int t = 0; t < static_cast<int>(shard.tensors.size()); ++t) {
        const plan::LocalTensor& local = shard.tensors[static_cast<std::size_t>(t)];
        result.tensors.emplace_back(local.parameter, local, floats_of(rank_.device(), state.weight({unit, t})),
                                    floats_of(rank_.device(), state.gradient({unit, t})));
      }
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
  comm::ThreadWorld world(size, Seconds{60});
  std::vector<RankResult> results(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      RankResult& result = results[static_cast<std::size_t>(rank)];
      try {
        RankRun(run, rank, world).train(steps, result);
      } catch (const std::exception& error) {
        result.error = std::current_exception();
        world.report_lost(rank, error.what());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();

  const model::ParameterTable table = model::make_parameter_table(run.config);
  WorldCurve curve;
  for (const RankResult& result : results) {
    if (result.error) std::rethrow_exception(result.error);
    if (curve.lines.empty()) curve.lines = result.lines;
    TRIREME_CHECK(curve.lines == result.lines, "two ranks have other losses or norms");
    curve.ranks.push_back(result.report);
    for (const auto& [parameter, local, weight, gradient] : result.tensors) {
      const model::Parameter& p = table.parameters[static_cast<std::size_t>(parameter)];
      place(curve.weights, p, local, weight);
      place(curve.gradients, p, local, gradient);
    }
  }
  return curve;
}

}  // namespace trireme::testing
