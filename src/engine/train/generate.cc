#include "engine/train/generate.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/random.h"
#include "engine/parallel/rank.h"
#include "engine/train/weights.h"

namespace trireme::train {
namespace {

std::int32_t draw(const std::vector<double>& logits, double temperature, double uniform) {
  const auto likeliest = std::max_element(logits.begin(), logits.end());
  if (temperature <= 0.0) return static_cast<std::int32_t>(likeliest - logits.begin());
  std::vector<double> cumulative;
  double sum = 0.0;
  for (double logit : logits) cumulative.push_back(sum += std::exp((logit - *likeliest) / temperature));
  const auto chosen = std::upper_bound(cumulative.begin(), cumulative.end(), uniform * sum);
  return static_cast<std::int32_t>(
      std::min<std::ptrdiff_t>(chosen - cumulative.begin(), static_cast<std::ptrdiff_t>(logits.size()) - 1));
}

}  // namespace

void generate(Env& env, Log& log, const GenerateOptions& options, const std::function<bool(std::int32_t)>& take) {
  if (options.prompt.empty()) {
    throw Error(Failure{.option = "--prompt", .value = "", .rule = "needs at least one token", .nearest = ""});
  }
  const model::Config config = model::load_config(env, options.model_directory).or_throw();
  const std::int64_t context = options.context;
  parallel::RunPlan plan =
      parallel::make_run_plan(config, {}, {.global_batch = 1, .micro_batch = 1, .sequence = context},
                              {.threads = options.threads, .compute = DType::kF32, .evaluation_micro_batches = 1}, 0);
  parallel::Rank rank(env, log, kernels::make_cpu_device(options.threads), std::move(plan), {});
  import_weights(env, rank.device(), rank.plan(), options.model_directory, rank.executor().state());

  std::vector<std::int32_t> tokens = options.prompt;
  for (std::int64_t i = 0; i < options.tokens; ++i) {
    // Attention is causal, so what fills the window behind the last token does not matter.
    const auto used = std::min<std::size_t>(tokens.size(), static_cast<std::size_t>(context));
    std::vector<std::int32_t> window(tokens.end() - static_cast<std::ptrdiff_t>(used), tokens.end());
    window.resize(static_cast<std::size_t>(context), 0);
    std::optional<std::vector<double>> last;
    rank.executor().logits(window, [&](std::int64_t first_row, std::int64_t columns, const std::vector<double>& rows) {
      const std::int64_t row = static_cast<std::int64_t>(used) - 1 - first_row;
      if (row < 0 || row * columns >= static_cast<std::int64_t>(rows.size())) return;
      last.emplace(rows.begin() + row * columns, rows.begin() + (row + 1) * columns);
    });
    TRIREME_CHECK(last.has_value());
    const double uniform =
        random_uniform({options.seed, stream_of("generate", "token")}, static_cast<std::uint64_t>(i));
    tokens.push_back(draw(*last, options.temperature, uniform));
    if (!take(tokens.back())) return;
  }
}

}  // namespace trireme::train
