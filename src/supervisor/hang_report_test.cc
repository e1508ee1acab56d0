#include "supervisor/hang_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme::supervisor {
namespace {

using telemetry::OperationRecord;
using telemetry::Phase;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Ranks = std::vector<int>;

// What ranks say, put together a call each.
class Scene {
 public:
  explicit Scene(int ranks) {
    evidence_.ranks = ranks;
    for (int rank = 0; rank < ranks; ++rank) {
      evidence_.records[rank];
      at(rank, 7, Phase::kBackward);
    }
  }
  Scene& at(int rank, std::int64_t step, Phase phase) {
    evidence_.progress[rank] = {.rank = rank, .step = step, .phase = phase};
    return *this;
  }
  Scene& silent(int rank) {
    evidence_.records.erase(rank);
    return *this;
  }
  // Operation `sequence` of its group, which took no time.
  Scene& done(int rank, const std::string& axis, const Ranks& group, std::int64_t sequence,
              const std::string& operation = "all-reduce (sum) of 5 F32", int instance = 0) {
    return add(rank, axis, group, sequence, operation, instance, true);
  }
  // One that has not ended.
  Scene& open(int rank, const std::string& axis, const Ranks& group, std::int64_t sequence,
              const std::string& operation = "all-reduce (sum) of 5 F32", int instance = 0) {
    return add(rank, axis, group, sequence, operation, instance, false);
  }
  HangReport diagnose() const { return diagnose_hang(evidence_); }
  HangEvidence& evidence() { return evidence_; }

 private:
  Scene& add(int rank, const std::string& axis, const Ranks& group, std::int64_t sequence, const std::string& operation,
             int instance, bool is_done) {
    OperationRecord record{.sequence = sequence,
                           .axis = axis,
                           .ranks = group,
                           .instance = instance,
                           .operation = operation,
                           .bytes = {20},
                           .posted = {1}};
    if (is_done) record.completed = Seconds{2};
    evidence_.records[rank].push_back(record);
    return *this;
  }
  HangEvidence evidence_;
};

constexpr const char* kReceive = "receive of 64 F32";
constexpr const char* kSend = "send of 64 F32";
const Ranks kFour{0, 1, 2, 3};

TEST(HangReport, OneRankIsMissingInAnAllReduce) {
  Scene scene(4);
  for (const int rank : kFour) scene.done(rank, "data", kFour, 11);
  for (const int rank : {0, 1, 3}) scene.open(rank, "data", kFour, 12);
  const HangReport report = scene.diagnose();
  EXPECT_THAT(report.culprits, ElementsAre(2));
  EXPECT_EQ(report.axis, "data");
  EXPECT_EQ(report.group, kFour);
  EXPECT_EQ(report.operation, "all-reduce (sum) of 5 F32");
  EXPECT_EQ(report.sequence, 12);
  EXPECT_EQ(report.step, 7);
  EXPECT_THAT(report.arrived, ElementsAre(0, 1, 3));
  EXPECT_THAT(report.missing, ElementsAre(2));
  EXPECT_THAT(report.silent, IsEmpty());
  EXPECT_EQ(
      report.text,
      "rank 2 gets no further in step 7; ranks 0, 1, 3 wait for rank 2 in #12 all-reduce (sum) of 5 F32 over data "
      "of ranks 0, 1, 2, 3\n"
      "rank 2: step 7, backward; waits for nobody; last: data all-reduce (sum) of 5 F32\n"
      "rank 0: step 7, backward; waits for rank 2 in data all-reduce (sum) of 5 F32\n"
      "rank 1: step 7, backward; waits for rank 2 in data all-reduce (sum) of 5 F32\n"
      "rank 3: step 7, backward; waits for rank 2 in data all-reduce (sum) of 5 F32");
}

TEST(HangReport, TwoRanksAreMissing) {
  Scene scene(4);
  for (const int rank : {1, 2}) scene.open(rank, "data", kFour, 1, "barrier");
  const HangReport report = scene.diagnose();
  EXPECT_THAT(report.culprits, ElementsAre(0, 3));
  EXPECT_THAT(report.missing, ElementsAre(0, 3));
}

TEST(HangReport, AnOperationThatAllHaveBegunIsNoWait) {
  Scene scene(2);  // the first bucket is done, nobody has looked yet
  for (const int rank : {0, 1}) scene.open(rank, "data", {0, 1}, 4, "reduce-scatter of 8 F32");
  scene.open(0, "data", {0, 1}, 5, "reduce-scatter of 8 F32");
  const HangReport report = scene.diagnose();
  EXPECT_THAT(report.culprits, ElementsAre(1));
  EXPECT_EQ(report.sequence, 5);
}

// One rank waits for another in one group, and that one for a third in another group.
TEST(HangReport, AChainLeadsToItsEnd) {
  Scene scene(4);
  scene.open(0, "data", {0, 2}, 5).open(2, "tensor", {2, 3}, 9, "all-gather of 4 BF16");
  scene.done(3, "tensor", {2, 3}, 8, "all-gather of 4 BF16").open(1, "tensor", {0, 1}, 9);
  const HangReport report = scene.diagnose();
  EXPECT_THAT(report.culprits, ElementsAre(3));
  EXPECT_EQ(report.axis, "tensor");
  EXPECT_THAT(report.group, ElementsAre(2, 3));
  EXPECT_THAT(report.arrived, ElementsAre(2));
  EXPECT_EQ(report.sequence, 9);
}

TEST(HangReport, GroupsOfOneAxisAndInstancesAreKeptApart) {
  Scene scene(4);
  scene.open(0, "tensor", {0, 1}, 3).done(1, "tensor", {0, 1}, 2).done(1, "tensor", {0, 1}, 40, "barrier", 1);
  scene.open(2, "tensor", {2, 3}, 90).open(3, "tensor", {2, 3}, 90);
  for (const int rank : {2, 3}) scene.open(rank, "data", {rank - 2, rank}, 4);
  scene.open(0, "data", {0, 2}, 4);
  const HangReport report = scene.diagnose();
  EXPECT_THAT(report.culprits, ElementsAre(1));
}

TEST(HangReport, ASilentRankIsTheCulprit) {
  Scene scene(4);
  scene.silent(2);
  for (const int rank : {0, 1, 3}) scene.open(rank, "data", kFour, 12);
  const HangReport report = scene.diagnose();
  EXPECT_THAT(report.culprits, ElementsAre(2));
  EXPECT_THAT(report.silent, ElementsAre(2));
  EXPECT_THAT(report.missing, ElementsAre(2));
  EXPECT_THAT(report.text, HasSubstr("rank 2 does not answer; ranks 0, 1, 3 wait for rank 2 in #12"));
  EXPECT_THAT(report.text, HasSubstr("rank 2: step 7, backward; no answer"));
}

TEST(HangReport, ASilentRankThatNobodyWaitsForYet) {
  Scene scene(3);
  scene.silent(1);
  const HangReport report = scene.diagnose();
  EXPECT_THAT(report.culprits, ElementsAre(1));
  EXPECT_EQ(report.axis, "");
  EXPECT_THAT(report.text, HasSubstr("rank 1 does not answer; nobody waits for it"));
}

TEST(HangReport, NoRankAnswers) {
  Scene scene(3);
  for (const int rank : {0, 1, 2}) scene.silent(rank);
  const HangReport report = scene.diagnose();
  EXPECT_THAT(report.culprits, ElementsAre(0, 1, 2));
  EXPECT_THAT(report.silent, ElementsAre(0, 1, 2));
  EXPECT_THAT(report.text, HasSubstr("no rank answers"));
  HangEvidence nothing;
  nothing.ranks = 2;
  EXPECT_THAT(diagnose_hang(nothing).culprits, ElementsAre(0, 1));
}

TEST(HangReport, ACycleIsAllAtFaultAndThoseThatWaitForItAreNot) {
  Scene scene(5);
  scene.open(0, "data", {0, 2}, 5).open(2, "tensor", {2, 3}, 5).open(3, "data", {1, 3}, 5).open(1, "tensor", {0, 1}, 5);
  scene.open(4, "pipeline", {3, 4}, 1, kReceive);
  const HangReport report = scene.diagnose();
  EXPECT_THAT(report.culprits, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(report.text, HasSubstr("ranks 0, 1, 2, 3 wait for each other"));
}

TEST(HangReport, ARankThatComputesForEverAndNobodyWaitsForItYet) {
  Scene scene(1);
  const HangReport alone = scene.diagnose();
  EXPECT_THAT(alone.culprits, ElementsAre(0));
  EXPECT_THAT(alone.text, HasSubstr("rank 0 gets no further in step 7; nobody waits for it"));
  Scene several(3);  // the ranks that have done the step have gone on to the next
  several.at(0, 8, Phase::kForward).at(1, 7, Phase::kOptimizer).at(2, 8, Phase::kForward);
  EXPECT_THAT(several.diagnose().culprits, ElementsAre(1));
  Scene equal(2);  // cannot be told apart
  EXPECT_THAT(equal.diagnose().culprits, ElementsAre(0, 1));
}

TEST(HangReport, BetweenStepsRanksWaitForTheLeadersWord) {
  Scene scene(3);
  for (const int rank : {0, 1, 2}) scene.at(rank, 8, Phase::kIdle);
  const HangReport report = scene.diagnose();
  EXPECT_THAT(report.culprits, ElementsAre(0));
  EXPECT_EQ(report.operation, "the leader's word");
  EXPECT_THAT(report.arrived, ElementsAre(1, 2));
  EXPECT_THAT(report.text, HasSubstr("ranks 1, 2 wait for rank 0 in the leader's word"));
  scene.at(2, 7, Phase::kOptimizer);  // which is why rank 0 has given none
  EXPECT_THAT(scene.diagnose().culprits, ElementsAre(2));
}

// ---- Messages between stages.

TEST(HangReport, AReceiveOfTwoStagesWaitsForTheOther) {
  Scene scene(2);
  scene.done(0, "pipeline", {0, 1}, 31, kSend).done(1, "pipeline", {0, 1}, 12, kReceive);
  scene.open(0, "pipeline", {0, 1}, 32, kReceive);  // it has begun more operations, and waits all the same
  const HangReport report = scene.diagnose();
  EXPECT_THAT(report.culprits, ElementsAre(1));
  EXPECT_EQ(report.axis, "pipeline");
  EXPECT_EQ(report.operation, kReceive);
  EXPECT_EQ(report.sequence, 32);
  EXPECT_THAT(report.arrived, ElementsAre(0));
  EXPECT_THAT(report.missing, ElementsAre(1));
}

TEST(HangReport, EachStageOfAPipelineStuckInTurn) {
  for (const int culprit : kFour) {
    Scene scene(4);
    for (const int rank : kFour) {
      scene.open(rank, "pipeline", kFour, 20 + rank, kSend);  // done and not looked at yet
      if (rank != culprit) scene.open(rank, "pipeline", kFour, 21 + rank, kReceive);
    }
    EXPECT_THAT(scene.diagnose().culprits, ElementsAre(culprit));
  }
}

TEST(HangReport, AReceiveThatNamesItsSenderWaitsForThatOneAlone) {
  Scene scene(4);
  scene.open(2, "pipeline", kFour, 5, "receive from index 1 of 64 F32");
  const HangReport report = scene.diagnose();
  EXPECT_THAT(report.missing, ElementsAre(1));
  EXPECT_THAT(report.culprits, ElementsAre(1));
}

TEST(HangReport, ASenderWithoutReceiverIsNotToBlame) {
  Scene scene(3);  // stage 0 is stuck in its send to stage 1, which computes for ever; stage 2 waits for stage 1
  const Ranks stages{0, 1, 2};
  scene.open(0, "pipeline", stages, 4, kSend).open(2, "pipeline", stages, 3, kReceive);
  EXPECT_THAT(scene.diagnose().culprits, ElementsAre(1));
}

TEST(HangReport, AChainOverPipelineTensorAndDataGroups) {
  // dp 2, pp 2, tp 2, tensor fastest: stage 1 of replica 1 are ranks 6 and 7, of which 7 computes for ever.
  Scene scene(8);
  scene.open(6, "tensor", {6, 7}, 50).done(7, "tensor", {6, 7}, 49);
  scene.open(4, "pipeline", {4, 6}, 8, kReceive).open(5, "pipeline", {5, 7}, 8, kReceive);
  for (const int rank : {0, 1}) scene.open(rank, "data", {rank, rank + 4}, 3, "reduce-scatter of 8 F32");
  for (const int rank : {2, 3}) scene.open(rank, "data", {rank, rank + 4}, 3, "reduce-scatter of 8 F32");
  EXPECT_THAT(scene.diagnose().culprits, ElementsAre(7));
}

TEST(HangReport, ACollectiveOfAGroupThatAlsoSendsComparesWhatIsOpen) {
  Scene scene(3);
  const Ranks stages{0, 1, 2};
  scene.done(0, "pipeline", stages, 9, kSend).open(0, "pipeline", stages, 10, "all-reduce (sum) of 3 I64");
  scene.done(1, "pipeline", stages, 40, kReceive);  // has begun more, but not this
  scene.done(2, "pipeline", stages, 8, kReceive).open(2, "pipeline", stages, 9, "all-reduce (sum) of 3 I64");
  const HangReport report = scene.diagnose();
  EXPECT_THAT(report.culprits, ElementsAre(1));
  EXPECT_THAT(report.arrived, ElementsAre(0, 2));
}

// ---- Evidence that is not whole.

TEST(HangReport, RecordsOfRanksThatAreNotThereTellNothing) {
  Scene scene(2);
  scene.open(0, "data", {0, 7}, 1).open(0, "data", {-1, 0}, 1).open(0, "data", {}, 1).open(0, "tensor", {1}, 1);
  scene.open(0, "data", {0, 1}, 2).open(1, "pipeline", {1}, 2, "receive from index 9 of 1 F32");
  scene.evidence().records[9];
  scene.evidence().progress.clear();
  const HangReport report = scene.diagnose();
  EXPECT_THAT(report.culprits, ElementsAre(1));
  EXPECT_EQ(report.step, 0);
}

TEST(HangReport, ManyRanksAreToldInAFewLines) {
  constexpr int kRanks = 4096;
  Ranks all(kRanks);
  for (int rank = 0; rank < kRanks; ++rank) all[static_cast<std::size_t>(rank)] = rank;
  Scene scene(kRanks);
  for (const int rank : all) {
    if (rank != 4000) scene.open(rank, "data", all, 2);
  }
  const HangReport report = scene.diagnose();
  EXPECT_THAT(report.culprits, ElementsAre(4000));
  EXPECT_EQ(std::ranges::count(report.text, '\n'), 16);
  EXPECT_THAT(report.text, HasSubstr("4095 ranks (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, ...) wait"));
  EXPECT_LT(report.text.size(), 3000U);
}

}  // namespace
}  // namespace trireme::supervisor
