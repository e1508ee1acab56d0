// Law 2 over the table of data- and tensor-parallel layouts, as `verify` sees it: every tensor's gradient within its
// bound against one rank; and among layouts that differ in buckets and overlap alone, the same bits. A pairwise set
// always; with TRIREME_FULL_TABLE set, all families, degrees, buckets, sequence parallelism or not, for ten steps,
// printed.

#include <cstdlib>
#include <map>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "support/pairwise.h"
#include "support/verify_run.h"

namespace trireme::testing {
namespace {

using Row = std::vector<int>;

const std::vector<std::string> kFamilies{"llama", "gpt2"};
const std::vector<std::pair<int, int>> kDegrees{{2, 1}, {3, 1}, {4, 1}, {8, 1}, {1, 2},  // dp, tp
                                                {2, 2}, {4, 2}, {1, 4}, {2, 4}, {1, 8}};
const std::vector<std::string> kSequenceParallel{"false", "true"};
const std::vector<std::string> kBuckets{"0", "5000", "100000000"};
const std::vector<std::string> kOverlap{"true", "false"};
const std::vector<std::string> kRecompute{"none", "selective", "full"};
const std::vector<std::string> kMicroBatch{"1", "2"};
constexpr int kBatch = 24;
const std::vector<std::string> kPrecision{"fp32", "bf16"};
enum Factor { kFamily, kDegree, kSequence, kBucket, kOverlapped, kRemade, kMicro, kNumbers };

template <class T>
const T& value(const std::vector<T>& values, const Row& row, Factor factor) {
  return values[static_cast<std::size_t>(row[factor])];
}

// Options that change nothing are given their first value.
bool legal(const Row& row) {
  const auto [dp, tp] = value(kDegrees, row, kDegree);
  if (tp == 1 && row[kSequence] > 0) return false;
  if (kBatch % (dp * (row[kMicro] + 1)) != 0) return false;
  return dp > 1 || (row[kBucket] == 0 && row[kOverlapped] == 0);
}

struct Outcome {
  std::string name;
  train::VerifyReport report;
};

Outcome run(VerifyRun& verify, const Row& row, int steps) {
  const auto [dp, tp] = value(kDegrees, row, kDegree);
  const VerifyRun::Settings settings{{"layout.dp", std::to_string(dp)},
                                     {"layout.tp", std::to_string(tp)},
                                     {"layout.sequence_parallel", value(kSequenceParallel, row, kSequence)},
                                     {"layout.bucket", value(kBuckets, row, kBucket)},
                                     {"layout.overlap", value(kOverlap, row, kOverlapped)},
                                     {"layout.recompute", value(kRecompute, row, kRemade)},
                                     {"train.micro_batch", value(kMicroBatch, row, kMicro)},
                                     {"train.precision", value(kPrecision, row, kNumbers)},
                                     {"train.global_batch", std::to_string(kBatch)}};
  verify.use_family(value(kFamilies, row, kFamily));
  Outcome outcome{.name = value(kFamilies, row, kFamily), .report = verify.report(settings, {}, steps)};
  for (const auto& [key, text] : settings) outcome.name += fmt::format(" {}={}", key.substr(key.find('.') + 1), text);
  return outcome;
}

// The bits of a run: losses, norms, gradients and weights of every step.
std::vector<double> bits_of(const train::VerifyReport& report) {
  std::vector<double> bits;
  for (const train::StepValues& step : report.target) {
    bits.push_back(step.loss);
    bits.push_back(step.grad_norm);
    for (const auto& [name, tensor] : step.tensors) {
      bits.insert(bits.end(), tensor.gradient.begin(), tensor.gradient.end());
      bits.insert(bits.end(), tensor.weight.begin(), tensor.weight.end());
    }
  }
  return bits;
}

// Returns the worst difference over its bound.
double expect_no_alarm(const std::vector<Row>& rows, int steps, bool print) {
  VerifyRun verify;
  std::map<Row, std::vector<double>> bits;  // of layouts that are the same but for buckets, overlap, recompute
  double worst = 0;
  for (const Row& row : rows) {
    const Outcome outcome = run(verify, row, steps);
    const auto& first = outcome.report.first;
    EXPECT_NE(outcome.report.verdict, train::Verdict::kDifferent)
        << outcome.name << ": step " << first->step << " " << first->what << " of " << first->tensor << ": "
        << first->difference << " against " << first->bound;
    const double ratio = worst_ratio(outcome.report);
    worst = std::max(worst, ratio);
    if (print) fmt::print("{:.3f} of the bound  {}\n", ratio, outcome.name);
    Row same = row;
    same[kBucket] = same[kOverlapped] = same[kRemade] = 0;
    const auto [known, added] = bits.try_emplace(same, bits_of(outcome.report));
    EXPECT_EQ(known->second, bits_of(outcome.report)) << outcome.name;
  }
  return worst;
}

const std::vector<int> kFactors{2, 10, 2, 3, 2, 3, 2, 2};
// Families, degrees, sequence parallelism, buckets, precision.
const std::vector<int> kFullFactors{2, 10, 2, 3, 1, 1, 1, 2};

TEST(Table, APairwiseSetOfLayoutsRaisesNoAlarm) {
  const std::vector<Row> rows = pairwise_rows(kFactors, legal);
  EXPECT_GE(rows.size(), 24U);
  const double worst = expect_no_alarm(rows, 4, false);
  EXPECT_GT(worst, 0.0);
  EXPECT_LT(worst, 1.0);
  fmt::print("{} runs of 4 steps, worst gradient at {:.3f} of its bound\n", rows.size(), worst);
}

TEST(Table, AllLayoutsRaiseNoAlarm) {
  if (std::getenv("TRIREME_FULL_TABLE") == nullptr) GTEST_SKIP() << "TRIREME_FULL_TABLE is not set";
  const std::vector<Row> rows = all_rows(kFullFactors, legal);
  const double worst = expect_no_alarm(rows, 10, true);
  fmt::print("{} runs of 10 steps, worst gradient at {:.3f} of its bound\n", rows.size(), worst);
}

}  // namespace
}  // namespace trireme::testing
