#include "telemetry/control_line.h"

#include <atomic>
#include <mutex>
#include <thread>

#include <gtest/gtest.h>

#include "base/env.h"
#include "base/error.h"
#include "base/socket.h"

namespace trireme::telemetry {
namespace {

double now() { return posix_env().now().count; }

template <class Condition>
bool holds_within(double seconds, Condition condition) {
  const double until = now() + seconds;
  while (!condition()) {
    if (now() >= until) return false;
    posix_env().sleep(Seconds{0.002});
  }
  return true;
}

// The supervisor's end: a listener and at most one connection.
class Supervisor {
 public:
  explicit Supervisor(bool tcp = false) : listener_(tcp ? listen_tcp("127.0.0.1") : listen_locally()) {}

  std::string address() const { return listener_->address(); }
  bool accept() {
    return holds_within(5, [&] { return (connection_ = listener_->accept()) != nullptr; });
  }
  void send(const Message& message) { send_bytes(to_frame(message)); }
  void send_bytes(const std::string& bytes) { EXPECT_EQ(connection_->send(bytes), bytes.size()); }
  // The next message, "" where none comes: its JSON.
  std::string next(double seconds = 5) {
    const double until = now() + seconds;
    while (true) {
      const auto message = reader_.next();
      if (!message) return message.failure().sentence();
      if (*message) return to_json(**message).dump();
      const auto bytes = connection_->receive();
      if (!bytes || (bytes->empty() && now() >= until)) return "";
      reader_.add(*bytes);
      if (bytes->empty()) posix_env().sleep(Seconds{0.002});
    }
  }
  // Of what has been taken, "" where there is none.
  std::string next_taken() {
    const auto message = reader_.next();
    if (!message) return message.failure().sentence();
    return *message ? to_json(**message).dump() : "";
  }
  // Takes all until the other end's end, for next_taken(): faster than it can be read as messages.
  bool drain() {
    return holds_within(10, [&] {
      const auto bytes = connection_->receive();
      if (bytes) reader_.add(*bytes);
      return !bytes;
    });
  }
  void close() { connection_.reset(); }

 private:
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<Connection> connection_;
  FrameReader reader_{kMostMessageBytes};
};

// What a line has called.
struct Heard {
  std::mutex mutex;
  std::vector<std::string> messages;
  std::vector<std::string> gone;
  std::optional<Message> regular;

  std::vector<std::string> get(std::vector<std::string> Heard::*what) {
    const std::scoped_lock lock(mutex);
    return this->*what;
  }
  void set_regular(std::optional<Message> message) {
    const std::scoped_lock lock(mutex);
    regular = std::move(message);
  }
};

Hello hello() { return {"secret", 3, false, {0, 1}, "a", 17}; }

LineOptions options_of(const Supervisor& supervisor, Heard& heard) {
  LineOptions options;
  options.address = supervisor.address();
  options.hello = hello();
  options.take = [&heard](const Message& message) {
    const std::scoped_lock lock(heard.mutex);
    heard.messages.push_back(to_json(message).dump());
  };
  options.regular = [&heard] {
    const std::scoped_lock lock(heard.mutex);
    return heard.regular;
  };
  options.gone = [&heard](const std::string& why) {
    const std::scoped_lock lock(heard.mutex);
    heard.gone.push_back(why);
  };
  return options;
}

std::unique_ptr<ControlLine> open(const Supervisor& supervisor, Heard& heard) {
  return open_control_line(options_of(supervisor, heard));
}

std::string text(const Message& message) { return to_json(message).dump(); }

TEST(ControlLine, SaysHelloFirstThenWhatIsSent) {
  for (const bool tcp : {false, true}) {
    Supervisor supervisor(tcp);
    Heard heard;
    const auto line = open(supervisor, heard);
    line->send(Saved{5});
    ASSERT_TRUE(supervisor.accept());
    EXPECT_EQ(supervisor.next(), text(hello()));
    EXPECT_EQ(supervisor.next(), text(Saved{5}));
    EXPECT_TRUE(line->flush(1));
    supervisor.send(Stop{});
    supervisor.send(AskFlightRecords{});
    EXPECT_TRUE(holds_within(5, [&] { return heard.get(&Heard::messages).size() == 2; }));
    EXPECT_EQ(heard.get(&Heard::messages), (std::vector<std::string>{text(Stop{}), text(AskFlightRecords{})}));
    EXPECT_TRUE(heard.get(&Heard::gone).empty());
    supervisor.close();
  }
}

TEST(ControlLine, NobodyThereIsAnError) {
  Heard heard;
  Supervisor supervisor;
  const std::string address = supervisor.address();
  { const Supervisor other = std::move(supervisor); }
  LineOptions options;
  options.address = address;
  try {
    open_control_line(std::move(options));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kRankLost);
  }
}

TEST(ControlLine, SaysWhatChangedAndRepeatsItself) {
  Supervisor supervisor;
  Heard heard;
  const Message first = Alive{{{0, 1, Phase::kForward, 0, 1}}};
  const Message second = Alive{{{0, 1, Phase::kBackward, 0, 2}}};
  heard.set_regular(first);
  const auto line = open(supervisor, heard);
  ASSERT_TRUE(supervisor.accept());
  EXPECT_EQ(supervisor.next(), text(hello()));
  EXPECT_EQ(supervisor.next(), text(first));
  double begin = now();
  heard.set_regular(second);
  EXPECT_EQ(supervisor.next(), text(second));
  EXPECT_LT(now() - begin, kAliveEvery_s - 0.1);  // did not wait for its turn
  begin = now();
  EXPECT_EQ(supervisor.next(), text(second));
  EXPECT_GT(now() - begin, kAliveEvery_s - 0.2);
  heard.set_regular(std::nullopt);
  EXPECT_EQ(supervisor.next(), text(Alive{}));  // nothing to say, but it lives
  supervisor.close();
}

TEST(ControlLine, TheEndOfTheSupervisorIsSaidOnceAfterItsLastMessage) {
  Supervisor supervisor;
  Heard heard;
  const auto line = open(supervisor, heard);
  ASSERT_TRUE(supervisor.accept());
  supervisor.send(Stop{});
  supervisor.close();
  EXPECT_TRUE(holds_within(1, [&] { return !heard.get(&Heard::gone).empty(); }));
  EXPECT_EQ(heard.get(&Heard::gone), std::vector<std::string>{"the supervisor is gone"});
  EXPECT_EQ(heard.get(&Heard::messages), std::vector<std::string>{text(Stop{})});
  line->send(Saved{1});  // passed over
  EXPECT_FALSE(line->flush(1));
  EXPECT_EQ(heard.get(&Heard::gone).size(), 1u);
}

TEST(ControlLine, ASilentSupervisorIsFencedOff) {
  Supervisor supervisor;
  Heard heard;
  const double begin = now();
  const auto line = open(supervisor, heard);
  ASSERT_TRUE(supervisor.accept());
  posix_env().sleep(Seconds{0.7});
  supervisor.send(StillHere{});
  const double said = now();
  EXPECT_TRUE(holds_within(kFence_s + 2, [&] { return !heard.get(&Heard::gone).empty(); }));
  EXPECT_GE(now() - said, kFence_s - 0.01);
  EXPECT_LT(now() - begin, kFence_s + 2);
  EXPECT_EQ(heard.get(&Heard::gone), std::vector<std::string>{"the supervisor has said nothing for 2 s"});
}

TEST(ControlLine, WhoIsTurnedAwayInACrowdComesAgain) {
  Supervisor supervisor;
  Heard heard;
  const auto line = open(supervisor, heard);
  line->send(Saved{5});
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(supervisor.accept());
    supervisor.close();
  }
  ASSERT_TRUE(supervisor.accept());
  EXPECT_EQ(supervisor.next(), text(hello()));
  EXPECT_EQ(supervisor.next(), text(Saved{5}));
  EXPECT_TRUE(heard.get(&Heard::gone).empty());
  supervisor.send(StillHere{});
  EXPECT_TRUE(holds_within(1, [&] { return !heard.get(&Heard::messages).empty(); }));
  supervisor.close();  // it was known: this is the end
  EXPECT_TRUE(holds_within(1, [&] { return !heard.get(&Heard::gone).empty(); }));
}

// Of a process that can stand still: what it does meanwhile is nothing that could be done twice.
TEST(ControlLine, ASilentSupervisorOfThisMachineIsWaitedFor) {
  Supervisor supervisor;
  Heard heard;
  std::atomic<int> silent = 0, again = 0;
  LineOptions options = options_of(supervisor, heard);
  options.silent = [&](bool is) { ++(is ? silent : again); };
  const auto line = open_control_line(std::move(options));
  ASSERT_TRUE(supervisor.accept());
  supervisor.send(StillHere{});
  EXPECT_TRUE(holds_within(kFence_s + 2, [&] { return silent == 1; }));
  posix_env().sleep(Seconds{1});
  supervisor.send(StillHere{});
  EXPECT_TRUE(holds_within(1, [&] { return again == 1; }));
  supervisor.send(Suspend{});  // it says so itself
  EXPECT_TRUE(holds_within(1, [&] { return silent == 2; }));
  EXPECT_TRUE(heard.get(&Heard::gone).empty());
  EXPECT_EQ(heard.get(&Heard::messages), (std::vector<std::string>{text(StillHere{}), text(StillHere{})}));
  supervisor.close();
  EXPECT_TRUE(holds_within(1, [&] { return heard.get(&Heard::gone).size() == 1; }));
}

TEST(ControlLine, ASupervisorOfAnotherMachineIsNot) {
  Supervisor supervisor(true);
  Heard heard;
  LineOptions options = options_of(supervisor, heard);
  options.silent = [](bool) { ADD_FAILURE(); };
  const auto line = open_control_line(std::move(options));
  ASSERT_TRUE(supervisor.accept());
  EXPECT_TRUE(holds_within(kFence_s + 2, [&] { return !heard.get(&Heard::gone).empty(); }));
}

TEST(ControlLine, ASupervisorThatIsNotUnderstoodIsLeft) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {std::string(8, '\xFF'),
       "the supervisor is not understood: control message: has 4294967295 bytes; at most "
       "16777216 are taken"},
      {to_frame(Saved{1}), "the supervisor is not understood: a message that is not for workers"},
  };
  for (const auto& [bytes, why] : cases) {
    Supervisor supervisor;
    Heard heard;
    const auto line = open(supervisor, heard);
    ASSERT_TRUE(supervisor.accept());
    supervisor.send_bytes(bytes);
    EXPECT_TRUE(holds_within(1, [&] { return !heard.get(&Heard::gone).empty(); }));
    EXPECT_EQ(heard.get(&Heard::gone), std::vector<std::string>{why});
  }
}

// More than the system takes at once; the line is dropped before any of it is received.
TEST(ControlLine, WhatIsQueuedIsNotLostAtTheEnd) {
  for (const bool tcp : {false, true}) {
    Supervisor supervisor(tcp);
    Heard heard;
    auto line = open(supervisor, heard);
    ASSERT_TRUE(supervisor.accept());
    const std::string long_text(std::size_t{1} << 20, 'x');
    for (int i = 0; i < 12; ++i) {
      line->send(RankEnded{i, 70, long_text});
      supervisor.send(StillHere{});  // it lives, however slow this is
    }
    EXPECT_FALSE(line->flush(0.01));
    std::thread closer([&] { line.reset(); });
    EXPECT_TRUE(supervisor.drain()) << (tcp ? "tcp" : "local");
    supervisor.close();
    closer.join();
    EXPECT_EQ(supervisor.next_taken(), text(hello()));
    for (int i = 0; i < 12;) {
      const std::string message = supervisor.next_taken();
      if (message.find("alive") != std::string::npos) continue;
      ASSERT_TRUE(message == text(RankEnded{i, 70, long_text}))
          << i << ": " << message.substr(0, 50) << testing::PrintToString(heard.get(&Heard::gone));
      ++i;
    }
    EXPECT_TRUE(heard.get(&Heard::gone).empty());
  }
}

TEST(ControlLine, TheEndWaitsASecondAtMost) {
  Supervisor supervisor;
  Heard heard;
  auto line = open(supervisor, heard);
  ASSERT_TRUE(supervisor.accept());
  line->send(RankEnded{0, 70, std::string(std::size_t{4} << 20, 'x')});
  const double begin = now();
  line.reset();
  EXPECT_GE(now() - begin, 0.9);
  EXPECT_LT(now() - begin, 3);
}

TEST(ControlLine, ManyThreadsMaySend) {
  Supervisor supervisor;
  Heard heard;
  const auto line = open(supervisor, heard);
  ASSERT_TRUE(supervisor.accept());
  constexpr int kThreads = 4;
  constexpr int kEach = 200;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&line, t] {
      for (int i = 0; i < kEach; ++i) line->send(StepDone{t, i, 1, 1});
    });
  }
  EXPECT_EQ(supervisor.next(), text(hello()));
  std::vector<int> steps(kThreads, 0);
  for (int left = kThreads * kEach; left > 0;) {
    const Result<Message> message = message_from_json(parse_json(supervisor.next(), "next").or_throw());
    ASSERT_TRUE(message.ok());
    const StepDone* done = std::get_if<StepDone>(&*message);
    if (done == nullptr) continue;                                         // alive
    EXPECT_EQ(done->step, steps[static_cast<std::size_t>(done->rank)]++);  // of each thread in its order
    --left;
  }
  for (std::thread& thread : threads) thread.join();
  supervisor.close();
}

}  // namespace
}  // namespace trireme::telemetry
