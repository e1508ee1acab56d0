// Law 2 along the pipeline axis: any number of stages, schedule, interleave and bucket size computes the same bits as
// one stage with the same data and tensor degrees. A pairwise set always; with TRIREME_FULL_TABLE set, all of it for
// ten steps, printed.

#include <cstdlib>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "support/pairwise.h"
#include "support/verify_run.h"

namespace trireme::testing {
namespace {

using Row = std::vector<int>;

const std::vector<std::string> kModels{"llama", "gpt2", "gpt2 untied", "llama tied"};
const std::vector<int> kStages{2, 4, 8};
const std::vector<std::pair<int, int>> kDegrees{{1, 1}, {2, 1}, {4, 1}, {1, 2}, {2, 2}, {1, 4}};  // dp, tp
const std::vector<std::string> kSchedules{"gpipe", "1f1b", "interleaved", "zb-h1"};
const std::vector<std::string> kSequenceParallel{"false", "true"};
const std::vector<std::string> kBuckets{"0", "20000"};
const std::vector<std::string> kRecompute{"none", "selective", "full"};
const std::vector<std::string> kPrecision{"fp32", "bf16"};
enum Factor { kModel, kStage, kDegree, kSchedule, kSequence, kBucket, kRemade, kNumbers };
const std::vector<int> kFactors{4, 3, 6, 4, 2, 2, 3, 2};
// Families, stages, degrees, schedules, sequence parallelism, precision.
const std::vector<int> kFullFactors{2, 3, 6, 4, 2, 1, 1, 2};

template <class T>
const T& value(const std::vector<T>& values, const Row& row, Factor factor) {
  return values[static_cast<std::size_t>(row[factor])];
}

bool legal(const Row& row) {
  const auto [dp, tp] = value(kDegrees, row, kDegree);
  if (dp * tp * value(kStages, row, kStage) > 8) return false;
  if (tp == 1 && row[kSequence] > 0) return false;
  return dp > 1 || row[kBucket] == 0;
}

void use_model(VerifyRun& verify, const std::string& name) {
  model::Config config = VerifyRun::config(name.substr(0, name.find(' ')));
  config.layers = 16;
  if (name == "gpt2 untied") config.tied_embeddings = false;
  if (name == "llama tied") config.tied_embeddings = true;
  verify.use_config(config);
}

void expect_equal(VerifyRun& verify, const Row& row, int steps, bool print) {
  const auto [dp, tp] = value(kDegrees, row, kDegree);
  const std::string& schedule = value(kSchedules, row, kSchedule);
  const VerifyRun::Settings settings{{"layout.dp", std::to_string(dp)},
                                     {"layout.tp", std::to_string(tp)},
                                     {"layout.pp", std::to_string(value(kStages, row, kStage))},
                                     {"layout.schedule", schedule},
                                     {"layout.interleave", schedule == "interleaved" ? "2" : "1"},
                                     {"layout.sequence_parallel", value(kSequenceParallel, row, kSequence)},
                                     {"layout.bucket", value(kBuckets, row, kBucket)},
                                     {"layout.recompute", value(kRecompute, row, kRemade)},
                                     {"train.precision", value(kPrecision, row, kNumbers)},
                                     {"train.global_batch", std::to_string(8 * dp)}};
  use_model(verify, value(kModels, row, kModel));
  const plan::Layout reference{.tp = tp, .dp = dp, .sequence_parallel = row[kSequence] > 0};
  const train::VerifyReport report = verify.against(reference, settings, {}, steps);
  std::string name = value(kModels, row, kModel);
  for (const auto& [key, text] : settings) name += fmt::format(" {}={}", key.substr(key.find('.') + 1), text);
  EXPECT_EQ(report.verdict, train::Verdict::kEqual)
      << name << ": step " << report.first->step << " " << report.first->what << " of " << report.first->tensor;
  if (print) fmt::print("{}  {}\n", train::verdict_name(report.verdict), name);
}

TEST(PipelineTable, APairwiseSetKeepsEveryBit) {
  VerifyRun verify;
  const std::vector<Row> rows = pairwise_rows(kFactors, legal);
  EXPECT_GE(rows.size(), 24U);
  for (const Row& row : rows) expect_equal(verify, row, 6, false);
  fmt::print("{} runs of 6 steps, all equal\n", rows.size());
}

TEST(PipelineTable, AllLayoutsKeepEveryBit) {
  if (std::getenv("TRIREME_FULL_TABLE") == nullptr) GTEST_SKIP() << "TRIREME_FULL_TABLE is not set";
  VerifyRun verify;
  const std::vector<Row> rows = all_rows(kFullFactors, legal);
  for (const Row& row : rows) expect_equal(verify, row, 10, true);
  fmt::print("{} runs of 10 steps\n", rows.size());
}

}  // namespace
}  // namespace trireme::testing
