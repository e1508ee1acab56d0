// A disk that is full, or gets full: before the run, before a save, while one is written.

#include <atomic>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/reader.h"
#include "checkpoint/store.h"
#include "engine/train/run_directory.h"
#include "engine/train/run_saver.h"
#include "engine/train/test_small_run.h"

namespace trireme::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// A disk that gets full as soon as it was asked how much room there is.
class FillingEnv : public FakeEnv {
 public:
  Bytes free_space(const std::string& path) override {
    const Bytes left = FakeEnv::free_space(path);
    if (denied_ > 0) {
      --denied_;
      return Bytes{0};
    }
    if (const std::int64_t bytes = std::exchange(leave_, -1); bytes >= 0) leave_room(bytes);
    return left;
  }
  // After the next answer there is room for `bytes`.
  void fill_after_answer(std::int64_t bytes) { leave_ = bytes; }
  // So many answers are that there is no room, or all until it is emptied.
  void deny(int answers = 1 << 30) { denied_ = answers; }
  void leave_room(std::int64_t bytes) {
    constexpr std::int64_t kLarge = std::int64_t{1} << 40;
    limit_bytes(kLarge);
    limit_bytes(kLarge - FakeEnv::free_space(".").count + bytes);
  }
  void empty() {
    denied_ = 0;
    limit_bytes(-1);
  }
  // As soon as anybody sleeps, as those do who wait, while this is so. Time goes slowly then: no long sleep of one
  // thread takes another's whole patience.
  void empty_when(std::function<bool()> so) { empty_when_ = std::move(so); }
  void sleep(Seconds duration) override {
    if (empty_when_ && empty_when_()) empty();
    FakeEnv::sleep(empty_when_ ? std::min(duration, Seconds{0.05}) : duration);
  }

 private:
  std::int64_t leave_ = -1;
  std::atomic<int> denied_ = 0;
  std::function<bool()> empty_when_;
};

class FullDisk : public ::testing::Test {
 protected:
  FullDisk() : run_(std::unique_ptr<FakeEnv>(env_)) {
    SmallRun unbroken;
    EXPECT_EQ(unbroken.run(kTwoReplicas).error, "");
    curve_ = unbroken.curve();
    const ResolvedRun run = unbroken.resolved(kTwoReplicas);
    needed_ = save_bytes(run.plan.table, run.config.layout);
    too_little_ = needed_.count - 2000;
  }

  // Between the first look at the disk after `step`, which is that before the next save, and that save.
  std::function<bool(std::int64_t)> filled_after(std::int64_t step, std::int64_t bytes) {
    return [=, this](std::int64_t done) {
      if (done == step) env_->fill_after_answer(bytes);
      return false;
    };
  }

  // Stops after step 2, whose checkpoint is there.
  void run_to_step_2() {
    EXPECT_EQ(run_.run(kTwoReplicas, [](std::int64_t step) { return step == 2; }).code, ExitCode::kInterrupted);
    EXPECT_THAT(checkpoint::damages_of(*env_, checkpoint_path(2)), IsEmpty());
  }

  // Once there is room the same command goes on from `step` to the end of the unbroken run.
  void expect_to_go_on_from(std::int64_t step) {
    env_->empty();
    const SmallRun::Outcome outcome = run_.run(kTwoReplicas);
    EXPECT_EQ(outcome.error, "");
    EXPECT_EQ(outcome.first_step, step + 1);
    EXPECT_EQ(run_.curve(), curve_);
    const checkpoint::Store store(*env_, checkpoints_of("out"));
    EXPECT_EQ(store.steps(), (std::vector<std::int64_t>{2, 4}));
    for (const int saved : {2, 4}) EXPECT_THAT(checkpoint::damages_of(*env_, checkpoint_path(saved)), IsEmpty());
    EXPECT_EQ(env_->list_directory(store.directory()).size(), 2U);
  }

  FillingEnv* env_ = new FillingEnv;
  SmallRun run_;
  std::vector<std::string> curve_;
  Bytes needed_;
  // While a run goes on: a lease that is being renewed gives its old file's bytes back.
  std::int64_t too_little_ = 0;
};

TEST_F(FullDisk, IsRefusedBeforeTheFirstStep) {
  env_->leave_room(needed_.count - 1);
  const Files before = run_.files();
  const SmallRun::Outcome outcome = run_.run(kTwoReplicas);
  EXPECT_EQ(outcome.code, ExitCode::kStorage);
  EXPECT_EQ(outcome.error, fmt::format("out.directory = out: a checkpoint needs {}, and its disk has {} left; a "
                                       "directory on another disk, or checkpoint.interval none",
                                       format_bytes(needed_), format_bytes(Bytes{needed_.count - 1})));
  EXPECT_EQ(run_.files(), before);
  expect_to_go_on_from(0);
}

TEST_F(FullDisk, WhileAShardIsWrittenEndsTheRunWithTheOlderCheckpointWhole) {
  run_to_step_2();
  const SmallRun::Outcome outcome = run_.run(kTwoReplicas, filled_after(3, 2000));
  EXPECT_EQ(outcome.code, ExitCode::kStorage) << outcome.error;
  EXPECT_THAT(outcome.error,
              AllOf(HasSubstr("checkpoint: save step 4: files: reserve room for " + checkpoint_path(4) +
                              ".inc-000002.partial/part-"),
                    HasSubstr("No space left on device"),
                    HasSubstr("free space or mend the disk, then start the same run again: it goes on from its last "
                              "checkpoint")));
  EXPECT_EQ(env_->list_directory(checkpoints_of("out")), std::vector<std::string>{"step-00000002"});
  EXPECT_THAT(checkpoint::damages_of(*env_, checkpoint_path(2)), IsEmpty());
  expect_to_go_on_from(2);
}

TEST_F(FullDisk, WhileTheManifestIsWrittenEndsTheRunWithTheOlderCheckpointWhole) {
  run_to_step_2();
  const std::int64_t shards = checkpoint::Reader::open_manifest(*env_, checkpoint_path(2)).or_throw().bytes();
  const SmallRun::Outcome outcome = run_.run(kTwoReplicas, filled_after(3, shards + 500));
  EXPECT_EQ(outcome.code, ExitCode::kStorage) << outcome.error;
  EXPECT_THAT(outcome.error, AllOf(HasSubstr("save step 4: files: write " + checkpoint_path(4) +
                                             ".inc-000002.partial/manifest.json: "),
                                   HasSubstr("No space left on device")));
  EXPECT_EQ(env_->list_directory(checkpoints_of("out")), std::vector<std::string>{"step-00000002"});
  EXPECT_THAT(checkpoint::damages_of(*env_, checkpoint_path(2)), IsEmpty());
  expect_to_go_on_from(2);
}

TEST_F(FullDisk, WhileTheFirstSaveIsWrittenLeavesARunThatBeginsAnewByItself) {
  const SmallRun::Outcome outcome = run_.run(kTwoReplicas, filled_after(2, 2000));
  EXPECT_EQ(outcome.code, ExitCode::kStorage) << outcome.error;
  EXPECT_THAT(outcome.error, HasSubstr("save step 2"));
  EXPECT_THAT(env_->list_directory(checkpoints_of("out")), IsEmpty());
  expect_to_go_on_from(0);
}

TEST_F(FullDisk, BeforeASaveIsAWarningAndTrainingGoesOn) {
  const SmallRun::Outcome outcome = run_.run(kTwoReplicas, [&](std::int64_t step) {
    if (step == 2) env_->leave_room(too_little_);
    if (step == 3) env_->empty();
    return false;
  });
  EXPECT_EQ(outcome.error, "");
  EXPECT_EQ(run_.curve(), curve_);
  EXPECT_THAT(
      run_.logged(),
      AllOf(HasSubstr(fmt::format("warning: no checkpoint now: it needs {}, and the disk of out/checkpoints has ",
                                  format_bytes(needed_))),
            HasSubstr("left. Training goes on; free some space, or this run can be lost\n")));
  EXPECT_EQ(env_->list_directory(checkpoints_of("out")), std::vector<std::string>{"step-00000004"});
  EXPECT_THAT(checkpoint::damages_of(*env_, checkpoint_path(4)), IsEmpty());
}

TEST_F(FullDisk, BeforeTheLastSaveIsAnError) {
  run_to_step_2();
  const SmallRun::Outcome outcome = run_.run(kTwoReplicas, [&](std::int64_t step) {
    if (step == 3) env_->leave_room(too_little_);
    return false;
  });
  EXPECT_EQ(outcome.code, ExitCode::kStorage);
  EXPECT_THAT(outcome.error, AllOf(HasSubstr("checkpoint: save step 4: there is no room for it"),
                                   HasSubstr(fmt::format("free {} on the disk of out", format_bytes(needed_)))));
  EXPECT_THAT(run_.logged(), HasSubstr("or this run can be lost"));
  EXPECT_THAT(checkpoint::damages_of(*env_, checkpoint_path(2)), IsEmpty());
  expect_to_go_on_from(2);
}

// A stop has its save too: without room for it the run does not end as one that was interrupted in order.
TEST_F(FullDisk, BeforeTheSaveOfAStopIsAnError) {
  run_to_step_2();
  const SmallRun::Outcome outcome = run_.run(kTwoReplicas, [&](std::int64_t step) {
    if (step == 3) env_->leave_room(too_little_);
    return step == 3;
  });
  EXPECT_EQ(outcome.code, ExitCode::kStorage);
  EXPECT_THAT(outcome.error, HasSubstr("checkpoint: save step 3: there is no room for it"));
  expect_to_go_on_from(2);
}

// The save before is under way then, and is not lost with the one that is not possible.
TEST_F(FullDisk, BeforeTheSaveOfAStopKeepsTheOneBefore) {
  const SmallRun::Outcome outcome = run_.run(kTwoReplicas, [&](std::int64_t step) {
    if (step == 3) env_->deny();
    return step == 3;
  });
  EXPECT_EQ(outcome.code, ExitCode::kStorage);
  EXPECT_THAT(outcome.error, HasSubstr("checkpoint: save step 3: there is no room for it"));
  EXPECT_THAT(run_.logged(), HasSubstr("or this run can be lost from step 2 on"));
  EXPECT_THAT(checkpoint::damages_of(*env_, checkpoint_path(2)), IsEmpty());
  expect_to_go_on_from(2);
}

TEST_F(FullDisk, ForAMomentWhileACheckpointIsWrittenIsWaitedFor) {
  for (const std::int64_t bytes : {0, 2000, 20000}) {
    SmallRun run(std::unique_ptr<FakeEnv>(env_ = new FillingEnv));
    env_->empty_when([&] { return run.logged().find("No space left on device") != std::string::npos; });
    const SmallRun::Outcome outcome = run.run(kTwoReplicas, [&](std::int64_t step) {
      if (step == 2) env_->fill_after_answer(bytes);
      return false;
    });
    EXPECT_EQ(outcome.error, "");
    EXPECT_EQ(run.curve(), curve_);
    EXPECT_THAT(run.logged(), AllOf(HasSubstr("No space left on device"), HasSubstr("passed")));
    for (const int saved : {2, 4}) EXPECT_THAT(checkpoint::damages_of(*env_, checkpoint_path(saved)), IsEmpty());
  }
}

TEST_F(FullDisk, ForAMomentBeforeTheLastSaveIsWaitedFor) {
  const SmallRun::Outcome outcome = run_.run(kTwoReplicas, [&](std::int64_t step) {
    if (step == 3) env_->deny(5);
    return false;
  });
  EXPECT_EQ(outcome.error, "");
  EXPECT_EQ(run_.curve(), curve_);
  EXPECT_THAT(run_.logged(), HasSubstr("it is waited for room"));
}

TEST_F(FullDisk, ForAMomentWhileMetricsAreWrittenTearsNoLine) {
  for (const std::int64_t bytes : {0, 10, 300}) {
    SmallRun run(std::unique_ptr<FakeEnv>(env_ = new FillingEnv));
    env_->empty_when([&] { return run.logged().find("the run goes on meanwhile") != std::string::npos; });
    const SmallRun::Outcome outcome = run.run(kTwoReplicas, [&](std::int64_t step) {
      if (step == 1) env_->leave_room(bytes);
      return false;
    });
    EXPECT_EQ(outcome.error, "");
    EXPECT_EQ(run.curve(), curve_);
    EXPECT_THAT(run.logged(), HasSubstr("the run goes on meanwhile"));
  }
}

// The metrics too need room.
TEST_F(FullDisk, WithoutRoomForALineOfMetricsEndsTheRunAndLosesNothing) {
  run_to_step_2();
  const SmallRun::Outcome outcome = run_.run(kTwoReplicas, [&](std::int64_t step) {
    if (step == 3) env_->leave_room(10);
    return false;
  });
  EXPECT_EQ(outcome.code, ExitCode::kStorage);
  EXPECT_THAT(run_.logged(), HasSubstr("files: write out/metrics.jsonl: No space left on device"));
  env_->empty();
  EXPECT_THAT(checkpoint::damages_of(*env_, checkpoint_path(2)), IsEmpty());
  expect_to_go_on_from(2);
}

TEST_F(FullDisk, ARunThatGoesOnIsRefusedBeforeItsFirstStepToo) {
  run_to_step_2();
  env_->leave_room(needed_.count - 1);
  const Files before = run_.files();
  const SmallRun::Outcome outcome = run_.run(kTwoReplicas);
  EXPECT_EQ(outcome.code, ExitCode::kStorage);
  EXPECT_THAT(outcome.error, HasSubstr("a checkpoint needs"));
  EXPECT_EQ(run_.files(), before);
  expect_to_go_on_from(2);
}

// With one tile of staging the run waits for the disk, and hears of it at once.
TEST_F(FullDisk, EndsARunThatWaitsForItsSavesToo) {
  Settings settings = kTwoReplicas;
  settings.emplace_back("checkpoint.async", "false");
  const SmallRun::Outcome outcome = run_.run(settings, filled_after(3, 2000));
  EXPECT_EQ(outcome.code, ExitCode::kStorage) << outcome.error;
  EXPECT_THAT(outcome.error, HasSubstr("save step 4: files: reserve room for " + checkpoint_path(4)));
  expect_to_go_on_from(2);
}

}  // namespace
}  // namespace trireme::train
