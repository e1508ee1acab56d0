// Every operation on the disk fails once, or fails from then on, over a whole run with saves: the run ends as it should
// or with an error that says so, and the same command goes on once the disk works again.

#include <chrono>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/reader.h"
#include "checkpoint/store.h"
#include "engine/train/run_directory.h"
#include "engine/train/test_small_run.h"

namespace trireme::train {
namespace {

using ::testing::IsEmpty;

struct Counts {
  int cases = 0;
  int ended_well = 0;  // in spite of the failure
  int began_anew = 0;  // by themselves, without a checkpoint
  int went_on = 0;
};

class FailingDisk : public ::testing::Test {
 protected:
  FailingDisk() {
    SmallRun fresh;
    fresh_ = fresh.files();
    EXPECT_EQ(fresh.run().error, "");
    curve_ = fresh.curve();
    model_ = fresh.env().content("out/model/model.safetensors");
  }

  void expect_whole(SmallRun& run, std::int64_t but = -1) {
    const checkpoint::Store store(run.env(), checkpoints_of("out"));
    for (const std::int64_t step : store.steps()) {
      if (step == but) continue;
      EXPECT_THAT(checkpoint::damages_of(run.env(), store.path_of(step)), IsEmpty()) << step;
    }
  }
  void expect_done(SmallRun& run) {
    EXPECT_EQ(run.curve(), curve_);
    EXPECT_TRUE(run.env().content("out/model/model.safetensors") == model_);
    EXPECT_EQ(run.env().exists(unsaved_mark_of("out")), false);
    expect_whole(run);
  }

  // A run, of which no rank waits for one that has ended: that would take the deadline.
  SmallRun::Outcome run_in_time(SmallRun& run, const Settings& settings) {
    const auto begun = std::chrono::steady_clock::now();
    const SmallRun::Outcome outcome = run.run(settings);
    EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(SmallRun::kDeadline)) << outcome.error;
    return outcome;
  }

  // From the disk `start`, with the n-th operation (and, if `on`, all after it) failing, for n from 1
  // until a run does not come to it any more. The checkpoint of step `damaged` is damaged at the start.
  Counts fail_each(const Files& start, const Settings& settings, bool on, std::int64_t damaged = -1) {
    Counts counts;
    for (std::int64_t n = 1;; ++n) {
      SCOPED_TRACE(fmt::format("operation {}", n));
      SmallRun run(start);
      on ? run.env().fail_from_operation(n) : run.env().fail_operation(n);
      const SmallRun::Outcome outcome = run_in_time(run, settings);
      const bool came_to_it = run.env().operations() >= n;
      run.env().fail_operation(0);
      if (outcome.code == ExitCode::kDone) {
        expect_done(run);
        if (!came_to_it) return counts;
        ++counts.ended_well;
      }
      ++counts.cases;
      if (outcome.code != ExitCode::kDone) {
        EXPECT_EQ(outcome.code, ExitCode::kStorage) << outcome.error;
        EXPECT_NE(outcome.error.find("Input/output error"), std::string::npos) << outcome.error;
      }
      // One that was passed over and set aside is written anew.
      expect_whole(run, outcome.code == ExitCode::kDone ? -1 : damaged);
      const SmallRun::Outcome again = run_in_time(run, settings);
      EXPECT_EQ(again.error, "") << "after " << outcome.error;
      (again.first_step == 1 ? counts.began_anew : counts.went_on) += 1;
      expect_done(run);
      if (HasFailure()) return counts;
    }
  }

  // Steps 2 and 4 are there, 4 is damaged.
  Files damaged_start(const Settings& settings) {
    SmallRun run(fresh_);
    EXPECT_EQ(run.run(settings).error, "");
    damage(run.env(), join_path(checkpoint_path(4), checkpoint::shard_name(0)), 9000);
    return run.files();
  }

  void tell(const char* name, const Counts& counts) {
    RecordProperty(name, fmt::format("{} cases, {} ended well, {} went on, {} began anew", counts.cases,
                                     counts.ended_well, counts.went_on, counts.began_anew));
    EXPECT_GT(counts.cases, 30);
  }

  Files fresh_;
  std::vector<std::string> curve_;
  std::string model_;
};

TEST_F(FailingDisk, OnceInARunOfOneRank) {
  const Counts counts = fail_each(fresh_, {}, false);
  tell("counts", counts);
  EXPECT_GT(counts.went_on, 0);
  EXPECT_GT(counts.began_anew, 0);
}

TEST_F(FailingDisk, FromThenOnInARunOfOneRank) { tell("counts", fail_each(fresh_, {}, true)); }

TEST_F(FailingDisk, OnceInARunOfTwoRanks) { tell("counts", fail_each(fresh_, {{"layout.pp", "2"}}, false)); }

TEST_F(FailingDisk, FromThenOnInARunOfTwoRanks) { tell("counts", fail_each(fresh_, {{"layout.pp", "2"}}, true)); }

TEST_F(FailingDisk, OnceInARunThatGoesOnPastADamagedCheckpoint) {
  const Settings settings = {{"layout.pp", "2"}};
  tell("counts", fail_each(damaged_start(settings), settings, false, 4));
}

TEST_F(FailingDisk, FromThenOnInARunThatGoesOnPastADamagedCheckpoint) {
  tell("counts", fail_each(damaged_start({}), {}, true, 4));
}

TEST_F(FailingDisk, OnceInARunThatWaitsForItsSaves) {
  tell("counts", fail_each(fresh_, {{"checkpoint.async", "false"}}, false));
}

}  // namespace
}  // namespace trireme::train
