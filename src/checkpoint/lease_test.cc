#include "checkpoint/lease.h"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <utility>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/fake_env.h"

namespace trireme::checkpoint {
namespace {

using testing::HasSubstr;

// A file system whose locks hold nobody off, as one that hosts share without a lock service. whenever() is called while
// somebody waits.
class LocklessEnv : public FakeEnv {
 public:
  std::unique_ptr<FileLock> try_lock(const std::string&) override { return std::make_unique<FileLock>(); }
  void sleep(Seconds duration) override {
    FakeEnv::sleep(duration);
    if (whenever) whenever();
  }
  void become(const std::string& host, std::int64_t process) {
    set_host_name(host);
    set_process_id(process);
  }
  std::function<void()> whenever;
};

Error error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error;
  }
  return Error(ExitCode::kDone, "", "", "no error");
}

std::string refusal(Env& env, const std::string& out) {
  return error_of([&] { Lease::claim(env, out); }).what();
}

TEST(Lease, AFreeDirectoryIsMadeAndClaimed) {
  FakeEnv env;
  env.advance({90});
  const auto lease = Lease::claim(env, "runs/a");
  EXPECT_FALSE(lease->taken_over());
  EXPECT_EQ(lease->incarnation(), 0);
  EXPECT_EQ(env.read_file("runs/a/.lease"),
            "{\"host\":\"host\",\"process\":4242,\"boot\":\"boot 1\",\"incarnation\":0,\"run_elapsed_s\":0.0,"
            "\"renewals\":0,\"since\":\"2000-01-01T00:01:30Z\"}\n");
  EXPECT_EQ(lease->begin_incarnation(), 1);
  EXPECT_EQ(lease->begin_incarnation(), 2);
  EXPECT_EQ(lease->begin_incarnation(7), 8);
  EXPECT_EQ(lease->begin_incarnation(7), 9);
  EXPECT_EQ(lease->incarnation(), 9);
  EXPECT_EQ(read_lease(env, "runs/a"), (LeaseRecord{"host", 4242, "boot 1", 9, 0, 0, "2000-01-01T00:01:30Z"}));
}

TEST(Lease, OneProcessHoldsIt) {
  FakeEnv env;
  const auto lease = Lease::claim(env, "out");
  env.set_process_id(77);
  env.advance({1000});
  const std::string before = env.read_file("out/.lease");
  EXPECT_EQ(refusal(env, "out"),
            "out.directory = out: another run is writing there: host host, process 4242, since 2000-01-01T00:00:00Z; "
            "another --out");
  EXPECT_EQ(env.read_file("out/.lease"), before);
}

TEST(Lease, AHolderThatHasNotSaidWhoItIsIsOneToo) {
  FakeEnv env;
  env.make_directories("out");
  const auto lock = env.try_lock("out/.lock");
  EXPECT_EQ(refusal(env, "out"), "out.directory = out: another run is writing there; another --out");
}

TEST(Lease, WhatWasGivenUpGoesOn) {
  FakeEnv env;
  for (std::int64_t start = 1; start <= 3; ++start) {
    const auto lease = Lease::claim(env, "out");
    EXPECT_FALSE(lease->taken_over());
    EXPECT_EQ(lease->incarnation(), start - 1);
    EXPECT_EQ(lease->run_elapsed_s(), static_cast<double>(start - 1) * 10);
    EXPECT_EQ(lease->begin_incarnation(), start);
    env.advance({10});
  }
  EXPECT_EQ(read_lease(env, "out")->process, 0);
}

// The process ends without its destructors: its lock goes, its file stays.
TEST(Lease, OfAKilledHolderIsTakenOverAtOnce) {
  LocklessEnv env;
  const auto killed = Lease::claim(env, "out");
  EXPECT_EQ(killed->begin_incarnation(), 1);
  env.advance({20});
  killed->renew();
  env.advance({0.5});
  env.set_process_id(77);  // 4242 is not alive
  const auto lease = Lease::claim(env, "out");
  EXPECT_EQ(env.now().count, 20.5);
  EXPECT_TRUE(lease->taken_over());
  EXPECT_EQ(lease->run_elapsed_s(), 20);  // as far as it was renewed
  EXPECT_EQ(lease->begin_incarnation(), 2);
}

TEST(Lease, OfAProcessWithThisOnesNumberToo) {  // the first process of a container always has the same
  LocklessEnv env;
  const auto killed = Lease::claim(env, "out");
  EXPECT_TRUE(Lease::claim(env, "out")->taken_over());
  EXPECT_EQ(env.now().count, 0);
}

TEST(Lease, AProcessNumberThatIsInUseIsWatched) {
  LocklessEnv env;
  const auto killed = Lease::claim(env, "out");
  env.set_process_id(77);
  env.set_alive(4242, true);  // is it the holder, or another that got its number?
  const auto lease = Lease::claim(env, "out");
  EXPECT_NEAR(env.now().count, kLeaseWait_s, 0.2);
  EXPECT_TRUE(lease->taken_over());
}

TEST(Lease, AProcessNumberOfAnEarlierBootIsNobody) {
  LocklessEnv env;
  const auto killed = Lease::claim(env, "out");
  EXPECT_EQ(killed->begin_incarnation(), 1);
  env.lose_power();
  env.set_process_id(77);
  env.set_alive(4242, true);
  const auto lease = Lease::claim(env, "out");
  EXPECT_TRUE(lease->taken_over());
  EXPECT_EQ(lease->begin_incarnation(), 2);
  EXPECT_EQ(read_lease(env, "out")->boot, "boot 2");
}

TEST(Lease, AnotherHostsIsRefusedWhileItRenews) {
  LocklessEnv env;
  env.become("a", 1);
  const auto first = Lease::claim(env, "out");
  EXPECT_EQ(first->begin_incarnation(), 1);
  env.become("b", 1);
  double renewed = env.now().count;
  env.whenever = [&] {
    if (env.now().count - renewed < kRenewEvery_s) return;
    renewed = env.now().count;
    first->renew();
  };
  EXPECT_EQ(refusal(env, "out"),
            "out.directory = out: another run is writing there: host a, process 1, since 2000-01-01T00:00:00Z; another "
            "--out");
  EXPECT_LT(env.now().count, 2);
  EXPECT_EQ(read_lease(env, "out")->renewals, 1);
}

TEST(Lease, AnotherHostsIsTakenOverOnceItIsSilent) {
  LocklessEnv env;
  env.become("a", 1);
  const auto first = Lease::claim(env, "out");
  EXPECT_EQ(first->begin_incarnation(), 1);
  first->renew();
  env.become("b", 1);
  const auto second = Lease::claim(env, "out");
  EXPECT_GE(env.now().count, kLeaseWait_s);
  EXPECT_TRUE(second->taken_over());
  EXPECT_EQ(second->begin_incarnation(), 2);
  // The first was only slow: it finds out, and leaves the file as it is.
  for (const auto& late : {std::function<void()>([&] { first->renew(); }), {[&] { first->begin_incarnation(9); }}}) {
    const Error error = error_of(late);
    EXPECT_EQ(error.code(), ExitCode::kStorage);
    EXPECT_THAT(error.what(), HasSubstr("it was taken by host b, process 1, since "));
  }
  second->renew();
  EXPECT_EQ(read_lease(env, "out")->incarnation, 2);
}

TEST(Lease, TheDestructorOfOneThatWasTakenLeavesTheOthers) {
  LocklessEnv env;
  env.become("a", 1);
  auto first = Lease::claim(env, "out");
  env.become("b", 2);
  const auto second = Lease::claim(env, "out");
  first.reset();
  EXPECT_EQ(read_lease(env, "out")->host, "b");
  second->renew();
}

TEST(Lease, AHolderThatGivesItUpWhileWatchedEndsTheWait) {
  LocklessEnv env;
  env.become("a", 1);
  auto first = Lease::claim(env, "out");
  EXPECT_EQ(first->begin_incarnation(), 1);
  env.become("b", 1);
  env.whenever = [&] { first.reset(); };
  const auto second = Lease::claim(env, "out");
  EXPECT_LT(env.now().count, 1);
  EXPECT_FALSE(second->taken_over());
  EXPECT_EQ(second->begin_incarnation(), 2);
}

TEST(Lease, WhoClaimsWhileAnotherWatchesHasIt) {
  LocklessEnv env;
  env.become("a", 1);
  const auto gone = Lease::claim(env, "out");
  env.become("b", 2);
  std::unique_ptr<Lease> second;
  env.whenever = [&] {
    if (second != nullptr) return;
    env.whenever = nullptr;
    env.become("c", 3);
    second = Lease::claim(env, "out");
  };
  EXPECT_THAT(refusal(env, "out"), HasSubstr("host c, process 3"));
}

TEST(Lease, FilesThatCannotBeRead) {
  const std::string good = [] {
    FakeEnv env;
    const auto lease = Lease::claim(env, "out");
    lease->begin_incarnation(4);
    return env.read_file("out/.lease");
  }();
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    return text.replace(text.find(from), from.size(), to);
  };
  for (const std::string& text :
       {std::string(), std::string("\0\0\0", 3), std::string("{}"), std::string("[]"), good.substr(0, good.size() / 2),
        with("\"incarnation\":5", "\"incarnation\":-5"), with("\"incarnation\":5", "\"incarnation\":5.5"),
        with("\"process\":4242", "\"process\":\"4242\""), with("\"host\"", "\"hosts\"")}) {
    FakeEnv env;
    env.put_file("out/.lease", text);
    EXPECT_EQ(read_lease(env, "out"), std::nullopt) << text;
    EXPECT_EQ(error_of([&] { check_incarnation(env, "out", 5); }).code(), ExitCode::kStorage) << text;
    const auto lease = Lease::claim(env, "out");
    EXPECT_TRUE(lease->taken_over()) << text;
    EXPECT_EQ(lease->incarnation(), 0);
    EXPECT_EQ(lease->begin_incarnation(6), 7);
  }
  FakeEnv env;  // the renewal still knows the incarnation
  env.put_file("out/.lease", "");
  env.put_file("out/.renewal", good);
  const auto lease = Lease::claim(env, "out");
  EXPECT_TRUE(lease->taken_over());
  EXPECT_EQ(lease->begin_incarnation(), 6);
}

TEST(Lease, ARenewalThatCannotBeWrittenEndsNothing) {
  FakeEnv env;
  const auto lease = Lease::claim(env, "out");
  env.limit_bytes(0);
  lease->renew();
  EXPECT_EQ(read_lease(env, "out")->renewals, 0);
  env.limit_bytes(100'000);
  lease->renew();
  EXPECT_EQ(read_lease(env, "out")->renewals, 2);
  EXPECT_EQ(env.list_directory("out"), (std::vector<std::string>{".lease", ".lock", ".renewal"}));
}

// The run directory was moved, and comes back; or it does not.
TEST(Lease, AFileThatIsAwayIsWaitedFor) {
  FakeEnv env;
  const auto lease = Lease::claim(env, "out");
  lease->begin_incarnation();
  env.rename("out", "away");
  for (int second = 0; second < 20; ++second) {
    lease->renew();
    EXPECT_TRUE(lease->is_away());
    EXPECT_FALSE(incarnation_is(env, "out", 1));
    env.advance(Seconds{1});
  }
  EXPECT_FALSE(env.exists("out"));  // nothing makes it anew
  env.rename("away", "out");
  lease->renew();
  EXPECT_FALSE(lease->is_away());
  EXPECT_TRUE(incarnation_is(env, "out", 1));
  EXPECT_EQ(read_lease(env, "out")->renewals, 1);
  env.rename("out", "away");
  lease->renew();
  env.advance(Seconds{kLeaseAway_s + 1});
  const Error error = error_of([&] { lease->renew(); });
  EXPECT_EQ(error.code(), ExitCode::kStorage);
  EXPECT_STREQ(error.what(),
               "checkpoint: hold the lease of out: out/.lease is gone or damaged, and still so after 30.00 s");
  EXPECT_THAT(error.hint(), HasSubstr("bring the run directory back"));
  EXPECT_EQ(error_of([&] { lease->begin_incarnation(); }).code(), ExitCode::kStorage);
  EXPECT_FALSE(env.exists("out"));
}

TEST(Lease, WhatKilledWritersLeftIsRemoved) {
  FakeEnv env;
  for (const char* name : {".lease.partial.1", ".renewal.partial.22", ".lease.mine"}) {
    env.put_file(join_path("out", name), "");
  }
  const auto lease = Lease::claim(env, "out");
  EXPECT_EQ(env.list_directory("out"), (std::vector<std::string>{".lease", ".lease.mine", ".lock"}));
}

TEST(CheckIncarnation, StopsAllButTheNewest) {
  FakeEnv env;
  EXPECT_EQ(error_of([&] { check_incarnation(env, "out", 1); }).code(), ExitCode::kStorage);
  auto lease = Lease::claim(env, "out");
  lease->begin_incarnation();
  check_incarnation(env, "out", 1);
  lease->begin_incarnation();
  check_incarnation(env, "out", 2);
  const Error error = error_of([&] { check_incarnation(env, "out", 1); });
  EXPECT_EQ(error.code(), ExitCode::kRankLost);
  EXPECT_STREQ(error.what(),
               "checkpoint: write as incarnation 1 of out: the run has incarnation 2 now: host host, process 4242, "
               "since 2000-01-01T00:00:30Z");
  lease.reset();  // a worker may outlive its supervisor
  check_incarnation(env, "out", 2);
}

// --- power losses --------------------------------------------------------------------------------------------------

// Claims, begins incarnations, renews; the power goes at the n-th operation, and the disk is in any state that it may
// then be in.
struct Crash {
  std::int64_t begun = 0;  // the last that begin_incarnation returned
  bool ended = false;      // before the n-th operation
};
Crash run_until(FakeEnv& env, std::int64_t operation) {
  Crash crash;
  env.fail_from_operation(operation);
  try {
    for (int start = 0; start < 3; ++start) {
      const auto lease = Lease::claim(env, "runs/out");
      for (int i = 0; i < 2; ++i) {
        crash.begun = lease->begin_incarnation();
        env.advance({1});
        lease->renew();
        lease->renew();
      }
    }
    crash.ended = env.operations() < operation;
  } catch (const Error&) {
  }
  return crash;
}

TEST(Lease, NoIncarnationComesTwiceAfterAPowerLossAtAnyOperation) {
  bool ended = false;
  std::int64_t states = 0, lost = 0;
  for (std::int64_t operation = 1; !ended && operation < 1000; ++operation) {
    for (std::uint64_t seed = 0; seed < 12; ++seed) {
      FakeEnv env;
      const Crash crash = run_until(env, operation);
      ended = crash.ended;
      if (seed == 0) {
        env.lose_power();
      } else {
        lost += env.lose_power(seed).lost_anything() ? 1 : 0;
      }
      ++states;
      const auto lease = Lease::claim(env, "runs/out");
      EXPECT_GE(lease->incarnation(), crash.begun) << "operation " << operation << ", seed " << seed;
      EXPECT_LE(lease->incarnation(), crash.begun + 1) << "operation " << operation << ", seed " << seed;
      EXPECT_GT(lease->begin_incarnation(), crash.begun);
      if (HasFailure()) return;
    }
  }
  EXPECT_TRUE(ended);
  EXPECT_GT(states, 200);
  EXPECT_GT(lost, states / 4);
}

// --- real processes ------------------------------------------------------------------------------------------------

// A child that claims and then does nothing until it is killed, or until told to give up.
class Holder {
 public:
  explicit Holder(const std::string& out) {
    if (::pipe(said_.data()) != 0 || ::pipe(told_.data()) != 0) return;
    id_ = ::fork();
    if (id_ == 0) live(out);
    char word = 0;
    claimed_ = ::read(said_[0], &word, 1) == 1 && word == 'c';
  }
  ~Holder() {
    end(SIGKILL);
    for (const int file : {said_[0], said_[1], told_[0], told_[1]}) ::close(file);
  }
  bool claimed() const { return claimed_; }
  pid_t id() const { return id_; }
  void end(int signal) {
    if (id_ <= 0) return;
    if (signal != 0) ::kill(id_, signal);
    if (signal == 0 && ::write(told_[1], "g", 1) != 1) ADD_FAILURE();
    int status = 0;
    ::waitpid(std::exchange(id_, 0), &status, 0);
  }

 private:
  [[noreturn]] void live(const std::string& out) {
    try {
      auto lease = Lease::claim(posix_env(), out);
      lease->begin_incarnation();
      char word = 'c';
      if (::write(said_[1], &word, 1) != 1 || ::read(told_[0], &word, 1) != 1) ::_exit(1);
      lease.reset();
      ::_exit(0);
    } catch (const std::exception&) {
      if (::write(said_[1], "f", 1) != 1) ::_exit(2);
    }
    ::_exit(1);
  }

  std::array<int, 2> said_{}, told_{};
  pid_t id_ = 0;
  bool claimed_ = false;
};

class LeaseOfProcesses : public testing::Test {
 protected:
  LeaseOfProcesses() {
    std::string pattern = testing::TempDir() + "trireme_lease_XXXXXX";
    if (const char* made = ::mkdtemp(pattern.data()); made != nullptr) out_ = join_path(made, "out");
  }
  ~LeaseOfProcesses() override {
    std::error_code ignored;
    std::filesystem::remove_all(directory_name(out_), ignored);
  }
  std::string out_;
};

TEST_F(LeaseOfProcesses, ALivingOneIsRefusedAndAKilledOneTakenOver) {
  Holder holder(out_);
  ASSERT_TRUE(holder.claimed());
  EXPECT_THAT(refusal(posix_env(), out_), HasSubstr(fmt::format("another run is writing there: host {}, process {}, "
                                                                "since 20",
                                                                posix_env().host_name(), holder.id())));
  holder.end(SIGKILL);
  const double begun = posix_env().now().count;
  const auto lease = Lease::claim(posix_env(), out_);
  EXPECT_LT(posix_env().now().count - begun, kLeaseWait_s);
  EXPECT_TRUE(lease->taken_over());
  EXPECT_EQ(lease->begin_incarnation(), 2);
  check_incarnation(posix_env(), out_, 2);
  EXPECT_EQ(error_of([&] { check_incarnation(posix_env(), out_, 1); }).code(), ExitCode::kRankLost);
  EXPECT_FALSE(Holder(out_).claimed());  // now it is ours
  lease->renew();
}

TEST_F(LeaseOfProcesses, OneThatGaveItUpIsNotTakenOver) {
  Holder holder(out_);
  ASSERT_TRUE(holder.claimed());
  holder.end(0);
  const auto lease = Lease::claim(posix_env(), out_);
  EXPECT_FALSE(lease->taken_over());
  EXPECT_EQ(lease->begin_incarnation(), 2);
}

}  // namespace
}  // namespace trireme::checkpoint
