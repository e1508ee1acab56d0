#include "engine/train/rank_reporter.h"

#include <chrono>
#include <map>
#include <thread>

#include <gtest/gtest.h>

#include "base/socket.h"

namespace trireme::train {
namespace {

using plan::Op;
using telemetry::Message;
using telemetry::Phase;

TEST(RankReporterTest, TellsWhereTheRankIs) {
  RankReporter reporter(3);
  EXPECT_EQ(reporter.progress().rank, 3);
  EXPECT_EQ(reporter.progress().phase, Phase::kStart);
  EXPECT_EQ(reporter.progress().advances, 0);
  reporter.step(7);
  reporter.at(Phase::kForward);
  reporter.at({.op = Op::kAllocate, .micro_batch = 1});
  EXPECT_EQ(reporter.progress().phase, Phase::kForward);
  reporter.at({.op = Op::kBackwardInput, .micro_batch = 2});
  const telemetry::RankProgress progress = reporter.progress();
  EXPECT_EQ(progress.step, 7);
  EXPECT_EQ(progress.phase, Phase::kBackward);
  EXPECT_EQ(progress.micro_batch, 2);
  EXPECT_EQ(progress.advances, 3);
  reporter.at({.op = Op::kFree});
  EXPECT_EQ(reporter.progress().phase, Phase::kBackward);
  reporter.advance();
  EXPECT_EQ(reporter.progress().advances, 5);
}

TEST(RankReporterTest, ValidationStaysWhatItIsWhateverItExecutes) {
  RankReporter reporter(0);
  reporter.at(Phase::kValidation);
  reporter.at({.op = Op::kForward, .micro_batch = 0});
  EXPECT_EQ(reporter.progress().phase, Phase::kValidation);
  EXPECT_EQ(reporter.progress().micro_batch, 0);
  reporter.at(Phase::kIdle);
  EXPECT_EQ(reporter.progress().micro_batch, -1);
}

TEST(RankReporterTest, InstructionsHaveTheirPhases) {
  const std::map<Op, Phase> phases{
      {Op::kForward, Phase::kForward},        {Op::kReceiveActivation, Phase::kForward},
      {Op::kRecompute, Phase::kBackward},     {Op::kBackwardWeight, Phase::kBackward},
      {Op::kSendGradient, Phase::kBackward},  {Op::kReduce, Phase::kReduce},
      {Op::kGather, Phase::kReduce},          {Op::kGatherUpdated, Phase::kReduce},
      {Op::kGradientNorm, Phase::kOptimizer}, {Op::kUpdate, Phase::kOptimizer},
  };
  for (const auto& [op, phase] : phases) EXPECT_EQ(phase_at({.op = op}), phase) << plan::op_name(op);
  EXPECT_EQ(phase_at({.op = Op::kRelease}), std::nullopt);
}

TEST(SilentReporter, HasItsRanksAndSaysNothing) {
  const std::unique_ptr<Reporter> reporter = make_silent_reporter({4, 5});
  EXPECT_EQ(reporter->rank(5).progress().rank, 5);
  EXPECT_THROW(reporter->rank(0), InternalError);
  reporter->send(telemetry::Saved{.step = 1});
  EXPECT_FALSE(reporter->stop_requested());
}

TEST(SupervisedBy, IsReadFromTheEnvironment) {
  using Variables = std::map<std::string, std::string>;
  const auto read = [](const Variables& variables) {
    return supervised_by([&](const std::string& name) {
      const auto found = variables.find(name);
      return found == variables.end() ? std::nullopt : std::optional(found->second);
    });
  };
  EXPECT_FALSE(read({}).has_value());
  Variables all{{"TRIREME_CONTROL", "local:x"}, {"TRIREME_SECRET", "abc"}, {"TRIREME_INCARNATION", "12"}};
  const std::optional<SupervisedBy> by = read(all);
  ASSERT_TRUE(by.has_value());
  EXPECT_EQ(by->address, "local:x");
  EXPECT_EQ(by->secret, "abc");
  EXPECT_EQ(by->incarnation, 12);
  for (const char* bad : {"", "0", "-1", "1x", "one"}) {
    all["TRIREME_INCARNATION"] = bad;
    EXPECT_THROW(read(all), Error) << bad;
  }
  all["TRIREME_INCARNATION"] = "1";
  all.erase("TRIREME_SECRET");
  EXPECT_THROW(read(all), Error);
}

// The supervisor's end of one line.
class OneLine {
 public:
  // The next message that `wanted` is true of; Stop where none comes within 10 s.
  Message wait_for(const std::function<bool(const Message&)>& wanted) {
    for (int round = 0; round < 500; ++round) {
      while (const std::optional<Message> message = reader_.next().or_throw()) {
        if (wanted(*message)) return *message;
      }
      take();
    }
    ADD_FAILURE() << "no such message came";
    return telemetry::Stop{};
  }
  void send(const Message& message) {
    const std::string frame = telemetry::to_frame(message);
    EXPECT_EQ(connection_->send(frame), frame.size());
  }
  void close() { connection_.reset(); }
  SupervisedBy by() const { return {.address = listener_->address(), .secret = "secret", .incarnation = 3}; }

 private:
  void take() {
    if (!connection_) connection_ = listener_->accept();
    Waited waited{.descriptor = connection_ ? connection_->descriptor() : listener_->descriptor()};
    wait_for_any({&waited, 1}, Seconds{0.02});
    if (!connection_) return;
    if (const std::optional<std::string> bytes = connection_->receive()) reader_.add(*bytes);
    send(telemetry::StillHere{});
  }

  std::unique_ptr<Listener> listener_ = listen_locally();
  std::unique_ptr<Connection> connection_;
  telemetry::FrameReader reader_{telemetry::kMostMessageBytes};
};

template <class Kind>
bool is(const Message& message) {
  return std::holds_alternative<Kind>(message);
}

TEST(LineReporter, SaysHelloWhereItsRanksAreAndWhatIsSent) {
  OneLine line;
  const std::unique_ptr<Reporter> reporter = make_reporter(posix_env(), line.by(), {2, 3});
  const auto hello = std::get<telemetry::Hello>(line.wait_for(is<telemetry::Hello>));
  EXPECT_EQ(hello.secret, "secret");
  EXPECT_EQ(hello.incarnation, 3);
  EXPECT_FALSE(hello.keeper);
  EXPECT_EQ(hello.ranks, (std::vector<int>{2, 3}));
  EXPECT_EQ(hello.process, posix_env().process_id());
  reporter->rank(3).step(5);
  reporter->rank(3).at(Phase::kOptimizer);
  line.wait_for([](const Message& message) {
    const auto* alive = std::get_if<telemetry::Alive>(&message);
    return alive != nullptr && alive->ranks.size() == 2 && alive->ranks[1].rank == 3 && alive->ranks[1].step == 5 &&
           alive->ranks[1].phase == Phase::kOptimizer;
  });
  reporter->send(telemetry::StepDone{.rank = 2, .step = 4, .step_s = 0.5, .compute_s = 0.25});
  const auto done = std::get<telemetry::StepDone>(line.wait_for(is<telemetry::StepDone>));
  EXPECT_EQ(done.rank, 2);
  EXPECT_EQ(done.compute_s, 0.25);
}

TEST(LineReporter, WhatDoesNotChangeIsToldTwiceASecond) {
  OneLine line;
  const std::unique_ptr<Reporter> reporter = make_reporter(posix_env(), line.by(), {0});
  line.wait_for(is<telemetry::Alive>);
  const auto begun = std::chrono::steady_clock::now();
  for (int i = 0; i < 3; ++i) line.wait_for(is<telemetry::Alive>);
  EXPECT_GE(std::chrono::steady_clock::now() - begun, std::chrono::milliseconds(1000));
}

TEST(LineReporter, AnswersForTheRanksThatHaveARecorder) {
  OneLine line;
  const std::unique_ptr<Reporter> reporter = make_reporter(posix_env(), line.by(), {2, 3});
  line.wait_for(is<telemetry::Hello>);
  telemetry::FlightRecorder recorder(8), gone(8);
  const int group = recorder.add_group("data", {2, 6});
  recorder.begin(group, "all-reduce", Bytes{64}, Seconds{1.5});
  reporter->set_recorder(2, &gone);
  reporter->set_recorder(3, &recorder);
  reporter->set_recorder(2, nullptr);
  line.send(telemetry::AskFlightRecords{});
  const auto records = std::get<telemetry::FlightRecords>(line.wait_for(is<telemetry::FlightRecords>));
  EXPECT_EQ(records.rank, 3);
  ASSERT_EQ(records.records.size(), 1U);
  EXPECT_EQ(records.records[0].operation, "all-reduce");
  EXPECT_EQ(records.records[0].ranks, (std::vector<int>{2, 6}));
}

TEST(LineReporter, HearsAStop) {
  OneLine line;
  const std::unique_ptr<Reporter> reporter = make_reporter(posix_env(), line.by(), {0});
  line.wait_for(is<telemetry::Hello>);
  EXPECT_FALSE(reporter->stop_requested());
  line.send(telemetry::Stop{});
  for (int round = 0; round < 500 && !reporter->stop_requested(); ++round) posix_env().sleep(Seconds{0.01});
  EXPECT_TRUE(reporter->stop_requested());
}

TEST(LineReporterDeathTest, EndsTheProcessOnceTheSupervisorIsGone) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        OneLine line;
        const std::unique_ptr<Reporter> reporter = make_reporter(posix_env(), line.by(), {0});
        line.wait_for(is<telemetry::Hello>);
        line.close();
        posix_env().sleep(Seconds{20});
      },
      testing::ExitedWithCode(88), "the supervisor is gone, and so this process ends at once");
}

}  // namespace
}  // namespace trireme::train
