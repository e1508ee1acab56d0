#include "planner/published_score.h"

#include <algorithm>
#include <cmath>

namespace trireme::planner {
namespace {

Result<Problem> problem_of(const PublishedRun& run, Calibration calibration) {
  if (const auto entry = calibration.frameworks.find(run.framework);
      entry != calibration.frameworks.end() && run.fp32_gradients) {
    entry->second.fp32_gradients = true;
  }
  return make_problem(run.config, run.cluster, run.global_batch, run.config.max_positions, DType::kBF16, calibration,
                      run.framework);
}

bool slow(const PublishedRun& run) {
  return run.step_s && run.model_flops() < kSlowShare * run.peak_flops_per_s() * *run.step_s;
}

}  // namespace

Errors errors_of(const std::vector<double>& signed_errors) {
  Errors errors{.count = static_cast<int>(signed_errors.size())};
  if (signed_errors.empty()) return errors;
  std::vector<double> sizes;
  for (double error : signed_errors) {
    sizes.push_back(std::abs(error));
    errors.mean += std::abs(error) / errors.count;
    errors.bias += error / errors.count;
    if (std::abs(error) > std::abs(errors.worst)) errors.worst = error;
  }
  std::sort(sizes.begin(), sizes.end());
  errors.median = (sizes[(sizes.size() - 1) / 2] + sizes[sizes.size() / 2]) / 2;
  return errors;
}

Result<std::vector<RunScore>> score_runs(const PublishedRuns& published, const Calibration& calibration) {
  std::vector<RunScore> scores;
  for (const PublishedRun& run : published.runs) {
    Result<Problem> problem = problem_of(run, calibration);
    if (!problem) return problem.failure();
    const Estimate estimate = Evaluator(std::move(problem).value()).estimate(run.choice);
    RunScore score;
    score.run = &run;
    if (run.step_s) {
      score.step_s = estimate.step_s;
      score.null_step_s = run.model_flops() / (kNullShare * run.peak_flops_per_s());
    }
    if (run.memory_bytes) {
      score.memory_bytes = run.memory_of_device ? estimate.worst().total() : estimate.worst().ledger;
    }
    scores.push_back(score);
  }
  return scores;
}

std::vector<SourceScore> score_sources(const std::vector<RunScore>& scores) {
  std::vector<std::string> sources;
  for (const RunScore& score : scores) {
    if (std::find(sources.begin(), sources.end(), score.run->source) == sources.end()) {
      sources.push_back(score.run->source);
    }
  }
  std::vector<SourceScore> result;
  for (const std::string& source : sources) {
    for (const bool slow_ones : {false, true}) {
      std::vector<double> time, null_time, memory;
      for (const RunScore& score : scores) {
        if (score.run->source != source || slow(*score.run) != slow_ones) continue;
        if (score.step_s) {
          time.push_back(*score.step_s / *score.run->step_s - 1);
          null_time.push_back(*score.null_step_s / *score.run->step_s - 1);
        }
        if (score.memory_bytes) memory.push_back(*score.memory_bytes / *score.run->memory_bytes - 1);
      }
      if (time.empty() && memory.empty()) continue;
      result.push_back({.source = source,
                        .slow = slow_ones,
                        .time = errors_of(time),
                        .null_time = errors_of(null_time),
                        .memory = errors_of(memory)});
    }
  }
  return result;
}

}  // namespace trireme::planner
