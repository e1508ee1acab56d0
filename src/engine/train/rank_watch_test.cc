// Runs that are watched, and faults that are planned: what the supervisor is told, what is left.

#include "engine/train/rank_watch.h"

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/process_exit.h"
#include "checkpoint/lease.h"
#include "checkpoint/reader.h"
#include "checkpoint/store.h"
#include "engine/train/run_directory.h"
#include "engine/train/test_small_run.h"
#include "telemetry/rank_log.h"

namespace trireme::train {
namespace {

using telemetry::Message;
using telemetry::Phase;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const Settings kTwoStages = {{"layout.pp", "2"}};
const Settings kValidates = {{"data.validation", "data/validation.bin"},
                             {"train.validation_micro_batches", "3"},
                             {"train.validation_interval", "2"}};

Settings both(Settings a, const Settings& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Keeps what is sent.
class RecordingReporter : public Reporter {
 public:
  explicit RecordingReporter(const std::vector<int>& ranks) : ranks_(make_silent_reporter(ranks)) {}
  RankReporter& rank(int rank) override { return ranks_->rank(rank); }
  void send(const Message& message) override {
    const std::lock_guard lock(mutex_);
    sent_.push_back(message);
  }
  void set_recorder(int rank, const telemetry::FlightRecorder* recorder) override {
    const std::lock_guard lock(mutex_);
    recorders_ += recorder != nullptr ? fmt::format("+{} ", rank) : fmt::format("-{} ", rank);
  }
  bool stop_requested() const override { return stop; }
  void flush() override {}

  template <class Kind>
  std::vector<Kind> sent() const {
    std::vector<Kind> all;
    const std::lock_guard lock(mutex_);
    for (const Message& message : sent_) {
      if (const auto* one = std::get_if<Kind>(&message)) all.push_back(*one);
    }
    return all;
  }
  std::vector<std::string> steps_of(int rank) const {
    std::vector<std::string> steps;
    for (const auto& done : sent<telemetry::StepDone>()) {
      if (done.rank != rank) continue;
      EXPECT_GT(done.compute_s, 0);
      EXPECT_LE(done.compute_s, done.step_s);
      steps.push_back(std::to_string(done.step));
    }
    return steps;
  }
  std::string recorders() const { return recorders_; }

  std::atomic<bool> stop = false;

 private:
  std::unique_ptr<Reporter> ranks_;
  mutable std::mutex mutex_;
  std::vector<Message> sent_;
  std::string recorders_;
};

std::vector<Json> metrics(SmallRun& run) {
  std::vector<Json> lines;
  const std::string text = run.env().content(metrics_of("out"));
  for (std::size_t begin = 0; begin < text.size(); begin = text.find('\n', begin) + 1) {
    lines.push_back(parse_json(text.substr(begin, text.find('\n', begin) - begin), "line").or_throw());
  }
  return lines;
}

class WatchedRun : public ::testing::Test {
 protected:
  // As the supervisor's start number `incarnation`.
  SmallRun::Outcome start(std::int64_t incarnation, const Settings& settings, const std::string& faults = "") {
    checkpoint::Lease::claim(run_.env(), "out")->begin_incarnation(incarnation - 1);
    reporter_ = std::make_unique<RecordingReporter>(std::vector<int>{0, 1});
    run_.hooks.reporter = reporter_.get();
    run_.hooks.incarnation = incarnation;
    run_.hooks.faults = parse_planned_faults(faults).or_throw();
    return run_.run(both(settings, {{"checkpoint.async", "false"}}));  // what was saved is there, however it ends
  }
  std::vector<std::string> marks() {
    std::vector<std::string> names;
    for (const std::string& name : run_.env().list_directory("out")) {
      if (name.starts_with(".fault-")) names.push_back(name);
    }
    return names;
  }
  std::string log_of(int rank) { return run_.env().content(telemetry::rank_log_of("out", rank)); }

  SmallRun run_;
  std::unique_ptr<RecordingReporter> reporter_;
};

TEST_F(WatchedRun, TellsItsSupervisorEachRanksStepsAndItsCheckpoints) {
  EXPECT_EQ(start(1, kTwoReplicas).error, "");
  const auto resumed = reporter_->sent<telemetry::Resumed>();
  ASSERT_EQ(resumed.size(), 1U);
  EXPECT_EQ(resumed[0].step, 0);
  EXPECT_FALSE(resumed[0].continues);
  EXPECT_THAT(reporter_->steps_of(0), ElementsAre("1", "2", "3", "4"));
  EXPECT_THAT(reporter_->steps_of(1), ElementsAre("1", "2", "3", "4"));
  std::vector<std::int64_t> saved;
  for (const auto& one : reporter_->sent<telemetry::Saved>()) saved.push_back(one.step);
  EXPECT_THAT(saved, ElementsAre(2, 4));
  const auto ends = reporter_->sent<telemetry::RankEnded>();
  ASSERT_EQ(ends.size(), 2U);
  for (int rank : {0, 1}) {
    EXPECT_EQ(ends[static_cast<std::size_t>(rank)].rank, rank);
    EXPECT_EQ(ends[static_cast<std::size_t>(rank)].code, 0);
    const telemetry::RankProgress progress = reporter_->rank(rank).progress();
    EXPECT_EQ(progress.phase, Phase::kFinish);
    EXPECT_EQ(progress.step, 5);
    EXPECT_GT(progress.advances, 100);
    EXPECT_THAT(reporter_->recorders(), HasSubstr(fmt::format("+{} ", rank)));
    EXPECT_THAT(reporter_->recorders(), HasSubstr(fmt::format("-{} ", rank)));
  }
}

TEST_F(WatchedRun, GoesOnAsTheStartThatItsSupervisorCounts) {
  EXPECT_EQ(start(3, kTwoReplicas, "nan:rank=0,step=4").code, ExitCode::kDiverged);
  EXPECT_EQ(start(7, kTwoReplicas).error, "");
  const auto resumed = reporter_->sent<telemetry::Resumed>();
  ASSERT_EQ(resumed.size(), 1U);
  EXPECT_EQ(resumed[0].step, 2);
  EXPECT_TRUE(resumed[0].continues);
  std::vector<std::int64_t> incarnations;
  for (const Json& line : metrics(run_)) incarnations.push_back(line.find("incarnation")->as_integer());
  EXPECT_THAT(incarnations, ElementsAre(3, 3, 7, 7));
}

TEST_F(WatchedRun, AStartThatAnotherHasReplacedEnds) {
  EXPECT_EQ(start(3, {}, "nan:rank=0,step=4").code, ExitCode::kDiverged);
  EXPECT_EQ(start(2, {}).code, ExitCode::kRankLost);  // the lease says 4 by now
}

TEST_F(WatchedRun, ARankThatFailsSaysWithWhat) {
  EXPECT_EQ(start(1, kTwoReplicas, "nan:rank=1,step=3").code, ExitCode::kDiverged);
  const auto ends = reporter_->sent<telemetry::RankEnded>();
  ASSERT_EQ(ends.size(), 2U);
  EXPECT_EQ(ends[0].code, static_cast<int>(ExitCode::kDiverged));
  EXPECT_THAT(ends[0].message, HasSubstr("step 3"));
  EXPECT_THAT(log_of(ends[0].rank), HasSubstr(ends[0].message.substr(0, ends[0].message.find(';'))));
}

TEST_F(WatchedRun, WhatIsRefusedBeforeARankBeginsIsTheLastWordOfAll) {
  run_.env().remove_file("data/train.bin");
  const SmallRun::Outcome outcome = start(1, kTwoReplicas);
  EXPECT_NE(outcome.code, ExitCode::kDone);
  const auto ends = reporter_->sent<telemetry::RankEnded>();
  ASSERT_EQ(ends.size(), 2U);
  for (const auto& end : ends) EXPECT_EQ(end.code, static_cast<int>(outcome.code));
}

TEST_F(WatchedRun, StopsWhenItsSupervisorAsksAndSaves) {
  reporter_ = std::make_unique<RecordingReporter>(std::vector<int>{0, 1});
  reporter_->stop = true;
  run_.hooks.reporter = reporter_.get();
  const SmallRun::Outcome outcome = run_.run(kTwoReplicas);
  EXPECT_EQ(outcome.code, ExitCode::kInterrupted);
  EXPECT_EQ(outcome.steps_done, 1);
  EXPECT_EQ(checkpoint::Store(run_.env(), checkpoints_of("out")).steps(), (std::vector<std::int64_t>{1}));
}

// A stop that comes in the second of three rounds of validation ends it for both ranks.
TEST_F(WatchedRun, AStopEndsAValidationOfSeveralRanksBetweenRounds) {
  int asked = 0;
  const SmallRun::Outcome outcome = run_.run(both(kTwoReplicas, kValidates), [&](std::int64_t step) {
    return step >= 1 && ++asked > 2;  // after step 1; in step 2 before round 0; before round 1
  });
  EXPECT_EQ(outcome.code, ExitCode::kInterrupted) << outcome.error;
  EXPECT_EQ(outcome.steps_done, 2);
  EXPECT_EQ(metrics(run_).back().find("validation_loss"), nullptr);
}

TEST_F(WatchedRun, SeveralRanksValidateWhereItIsDue) {
  EXPECT_EQ(run_.run(both(kTwoReplicas, kValidates)).error, "");
  std::vector<std::int64_t> validated;
  for (const Json& line : metrics(run_)) {
    if (line.find("validation_loss") != nullptr) validated.push_back(line.find("step")->as_integer());
  }
  EXPECT_THAT(validated, ElementsAre(2, 4));
}

TEST_F(WatchedRun, GoodputIsTheStepsThatCountOfAllTime) {
  EXPECT_EQ(start(1, {}, "nan:rank=0,step=4").code, ExitCode::kDiverged);
  for (const Json& line : metrics(run_)) EXPECT_EQ(line.find("goodput"), nullptr);
  run_.hooks.wall_before_s = 1e6;
  EXPECT_EQ(start(2, {}).error, "");
  const std::vector<Json> lines = metrics(run_);
  double useful_s = 0;
  for (const Json& line : lines) useful_s += line.find("step_s")->as_number();
  EXPECT_NEAR(lines[3].find("goodput")->as_number() * 1e6 / useful_s, 1.0, 1e-3);
  EXPECT_NEAR(lines[2].find("goodput")->as_number() * 1e6 / (useful_s - lines[3].find("step_s")->as_number()), 1.0,
              1e-3);
  EXPECT_EQ(lines[1].find("goodput"), nullptr);
}

TEST_F(WatchedRun, EachRankHasItsLogFile) {
  EXPECT_EQ(start(1, kTwoReplicas, "nan:rank=1,step=3").code, ExitCode::kDiverged);
  EXPECT_EQ(start(2, kTwoReplicas).error, "");
  const std::string leaders = log_of(0), others = log_of(1);
  EXPECT_THAT(leaders, HasSubstr("Z 2 ranks as threads of this process"));  // from before the directory was there
  EXPECT_THAT(leaders, HasSubstr("Z goes on from step 2 of "));
  EXPECT_THAT(leaders, HasSubstr("Z checkpoint of step 4 is durable"));
  EXPECT_THAT(others, HasSubstr("Z warning: planned fault: nan:rank=1,step=3\n"));
  EXPECT_THAT(others, HasSubstr("Z error: "));
}

TEST_F(WatchedRun, AFaultHappensInAsManyStartsAsPlannedAndItsMarksStay) {
  const std::string faults = "nan:rank=0,step=4,times=2";
  EXPECT_EQ(start(1, {}, faults).code, ExitCode::kDiverged);
  EXPECT_THAT(marks(), ElementsAre(".fault-0-1"));
  EXPECT_EQ(start(2, {}, faults).code, ExitCode::kDiverged);
  EXPECT_THAT(marks(), ElementsAre(".fault-0-1", ".fault-0-2"));
  EXPECT_EQ(start(3, {}, faults).error, "");
  EXPECT_THAT(marks(), ElementsAre(".fault-0-1", ".fault-0-2"));  // a supervisor may start it again
  remove_fault_marks(run_.env(), "out");
  EXPECT_THAT(marks(), ElementsAre());
  EXPECT_EQ(run_.curve(), [] {
    SmallRun unbroken;
    unbroken.run();
    return unbroken.curve();
  }());
}

TEST_F(WatchedRun, WithoutASupervisorAFaultHappensInEveryStart) {
  run_.hooks.faults = parse_planned_faults("nan:rank=0,step=4").or_throw();
  EXPECT_EQ(run_.run().code, ExitCode::kDiverged);
  EXPECT_EQ(run_.run().code, ExitCode::kDiverged);
  EXPECT_THAT(marks(), ElementsAre());
}

TEST_F(WatchedRun, ANanOfOneStepLeavesTheStepsBefore) {
  EXPECT_EQ(start(1, kTwoStages, "nan:rank=1,step=3,phase=backward,micro_batch=1").code, ExitCode::kDiverged);
  EXPECT_THAT(reporter_->steps_of(0), ElementsAre("1", "2"));
}

TEST_F(WatchedRun, ARankWithoutALossHasNoNan) {
  const SmallRun::Outcome outcome = start(1, kTwoStages, "nan:rank=0,step=3");
  EXPECT_EQ(outcome.code, ExitCode::kUsage);
  EXPECT_THAT(outcome.error, HasSubstr("inject = nan:rank=0,step=3: the rank has no loss that could be a nan"));
}

TEST_F(WatchedRun, ADiskGetsFullInTheSaveOfTheStep) {
  for (int rank : {0, 1}) {
    SCOPED_TRACE(rank);
    SmallRun run;
    run.hooks.faults = {{.kind = FaultKind::kDiskFull, .rank = rank, .step = 4}};
    const SmallRun::Outcome outcome = run.run(kTwoReplicas);
    EXPECT_EQ(outcome.code, ExitCode::kStorage);
    EXPECT_THAT(outcome.error,
                HasSubstr("save step 4: files: reserve room for out/checkpoints/step-00000004.inc-000001.partial/" +
                          checkpoint::shard_name(rank) + ": No space left on device"));
    EXPECT_EQ(run.env().list_directory(checkpoints_of("out")), std::vector<std::string>{"step-00000002"});
    run.hooks.faults = {};
    EXPECT_EQ(run.run(kTwoReplicas).error, "");
  }
}

// A disk in memory, on which what planned faults sleep is kept.
class SleepingEnv : public FakeEnv {
 public:
  void sleep(Seconds duration) override {
    const std::lock_guard lock(mutex_);
    slept_ += duration.count;
  }
  double slept() const { return slept_; }

 private:
  std::mutex mutex_;
  double slept_ = 0;
};

TEST(PlannedFault, ASlowRankSleepsAMultipleOfItsOwnWork) {
  auto* env = new SleepingEnv;
  SmallRun run{std::unique_ptr<FakeEnv>(env)};
  RecordingReporter reporter({0, 1});
  run.hooks.reporter = &reporter;
  run.hooks.faults = {{.kind = FaultKind::kSlow, .rank = 1, .step = 2, .factor = 101}};
  EXPECT_EQ(run.run(both(kTwoReplicas, {{"checkpoint.interval", "none"}})).error, "");
  double own_s = 0;  // of rank 1, from step 2 on
  for (const auto& done : reporter.sent<telemetry::StepDone>())
    own_s += done.rank == 1 && done.step > 1 ? done.compute_s : 0;
  EXPECT_GT(env->slept(), 0.3 * 100 * own_s);
  EXPECT_LE(env->slept(), 100 * own_s);
}

// A run on the real disk, for faults that take the process along.
class EndingRun : public ::testing::Test {
 protected:
  // A process that is to end starts the test anew, up to where it ends: in the directory of the one that watches.
  EndingRun() {
    testing::FLAGS_gtest_death_test_style = "threadsafe";
    if (const char* watched = std::getenv(kDirectory); watched != nullptr) {
      directory_ = watched;
      return;
    }
    directory_ = join_path(std::filesystem::temp_directory_path().string(),
                           fmt::format("trireme-ending-run-{}", posix_env().process_id()));
    ::setenv(kDirectory, directory_.c_str(), 1);
    SmallRun inputs;
    for (const auto& [path, content] : inputs.files()) {
      const std::string to = at(path);
      posix_env().make_directories(directory_name(to));
      posix_env().write_file_atomically(to, content);
    }
  }
  ~EndingRun() override {
    ::unsetenv(kDirectory);
    std::filesystem::remove_all(directory_);
  }

  std::string at(const std::string& path) const { return join_path(directory_, path); }
  std::string out() const { return at("out"); }

  TrainOutcome run(const std::string& faults, Reporter* reporter = nullptr) {
    const Settings settings{{"model.config", at("config.json")},
                            {"data.train", at("data/train.bin")},
                            {"train.steps", "4"},
                            {"train.sequence", "8"},
                            {"train.global_batch", "4"},
                            {"train.micro_batch", "1"},
                            {"train.threads", "1"},
                            {"checkpoint.interval", "2"},
                            {"layout.dp", "2"},
                            {"out.directory", out()}};
    const ResolvedRun run = resolve_run(posix_env(), make_run_config(Json::object(), settings).or_throw());
    const std::unique_ptr<RunWorld> world = make_thread_run_world(2, Seconds{60});
    MemoryLog log;
    const std::int64_t incarnation = checkpoint::Lease::claim(posix_env(), out())->begin_incarnation();
    return train(posix_env(), log, run, *world,
                 {.stop_requested = {},
                  .reporter = reporter,
                  .incarnation = incarnation,
                  .gemm_flops_per_s = 1e9,
                  .faults = parse_planned_faults(faults).or_throw()});
  }
  std::vector<std::int64_t> saved() const { return checkpoint::Store(posix_env(), checkpoints_of(out())).steps(); }
  bool exists(const std::string& path) const { return posix_env().exists(join_path(out(), path)); }

  static constexpr const char* kDirectory = "TRIREME_TEST_ENDING_RUN";
  std::string directory_;
};

using EndingRunDeathTest = EndingRun;

TEST_F(EndingRunDeathTest, AKillWhileAPartIsWrittenLeavesAPartialCheckpoint) {
  EXPECT_EXIT(run("kill:rank=1,step=2,phase=save"), testing::KilledBySignal(SIGKILL), "");
  EXPECT_TRUE(saved().empty());
  EXPECT_TRUE(exists("checkpoints/step-00000002.inc-000001.partial/" + checkpoint::shard_name(1)));
  EXPECT_FALSE(exists("checkpoints/step-00000002.inc-000001.partial/manifest.json"));
  EXPECT_TRUE(exists(".fault-0-1"));
  EXPECT_EQ(run("kill:rank=1,step=2,phase=save").steps_done, 4);
  EXPECT_TRUE(exists(".fault-0-1"));  // for as long as the supervisor has the run
}

TEST_F(EndingRunDeathTest, EndsAsPlanned) {
  EXPECT_EXIT(run("kill:rank=0,step=3,phase=optimizer"), testing::KilledBySignal(SIGKILL), "");
  EXPECT_EXIT(run("segv:rank=1,step=3,times=always"), testing::KilledBySignal(SIGSEGV), "");
  EXPECT_EXIT(run("exit:rank=1,phase=start,times=always"), testing::ExitedWithCode(3), "");
}

TEST_F(EndingRunDeathTest, AFlipDamagesTheNewestCheckpoint) {
  EXPECT_EXIT(run("flip:rank=1,step=4,phase=save"), testing::KilledBySignal(SIGKILL), "");
  ASSERT_EQ(saved(), (std::vector<std::int64_t>{2}));
  const std::vector<std::string> damages =
      checkpoint::damages_of(posix_env(), join_path(checkpoints_of(out()), checkpoint::name_of_step(2)));
  ASSERT_EQ(damages.size(), 1U);
  EXPECT_THAT(damages[0], HasSubstr(checkpoint::shard_name(0)));
}

TEST_F(EndingRunDeathTest, AHangStopsTheRankWhereItWasPlanned) {
  EXPECT_EXIT(
      {
        RecordingReporter reporter({0, 1});
        std::thread training([&] { run("hang:rank=1,step=2,phase=backward", &reporter); });
        training.detach();
        telemetry::RankProgress before;
        telemetry::RankProgress now;
        for (int round = 0; round < 100; ++round) {
          posix_env().sleep(Seconds{0.2});
          before = std::exchange(now, reporter.rank(1).progress());
          const bool stuck = now.step == 2 && now.advances == before.advances;
          if (stuck) end_process_at_once(now.phase == Phase::kBackward ? 7 : 8);
        }
        end_process_at_once(9);
      },
      testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace trireme::train
