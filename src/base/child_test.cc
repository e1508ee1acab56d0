#include "base/child.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include <gtest/gtest.h>

#include "base/env.h"
#include "base/error.h"
#include "base/socket.h"

namespace trireme {
namespace {

double now() { return posix_env().now().count; }

std::optional<ChildEnd> end_of(Child& child, double seconds = 10) {
  const double until = now() + seconds;
  while (now() < until) {
    if (const auto end = child.poll()) return end;
    std::vector<Waited> waited{{child.descriptor()}};
    wait_for_any(waited, Seconds{1});
  }
  return std::nullopt;
}

ChildCommand shell(const std::string& script) { return {{"sh", "-c", script}, {}, {}}; }

class ChildTest : public testing::Test {
 protected:
  ChildTest() : output_(testing::TempDir() + "trireme_child_" + std::to_string(::getpid())) {}
  ~ChildTest() override { std::filesystem::remove(output_); }

  // What a script writes, and that it ends well.
  std::string output_of(ChildCommand command) {
    std::filesystem::remove(output_);
    command.output = output_;
    const auto child = start_child(command);
    const auto end = end_of(*child);
    EXPECT_TRUE(end.has_value());
    EXPECT_EQ(end.value_or(ChildEnd{-1, -1}).signal, 0);
    EXPECT_EQ(end.value_or(ChildEnd{-1, -1}).code, 0);
    return read(output_);
  }
  static std::string read(const std::string& path) {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  std::string output_;
};

// Of any process, a stranger's child too: until it has ended.
class Watched {
 public:
  explicit Watched(pid_t id) : descriptor_(static_cast<int>(::syscall(SYS_pidfd_open, id, 0))) {}
  ~Watched() { ::close(descriptor_); }
  bool found() const { return descriptor_ >= 0; }
  bool ends_within(double seconds) const {
    std::vector<Waited> waited{{descriptor_}};
    wait_for_any(waited, Seconds{seconds});
    return waited[0].ready;
  }

 private:
  int descriptor_;
};

TEST_F(ChildTest, SaysHowItEnded) {
  const auto ends = start_child(shell("exit 7"));
  const auto end = end_of(*ends);
  ASSERT_TRUE(end);
  EXPECT_EQ(end->signal, 0);
  EXPECT_EQ(end->code, 7);
  ends->signal(SIGTERM);  // passed over
  ASSERT_TRUE(ends->poll());
  EXPECT_EQ(ends->poll()->code, 7);

  const auto killed = start_child(shell("kill -KILL $$"));
  const auto how = end_of(*killed);
  ASSERT_TRUE(how);
  EXPECT_EQ(how->signal, SIGKILL);
  EXPECT_EQ(how->code, 0);
}

TEST_F(ChildTest, RunsUntilItIsSignalled) {
  const auto child = start_child({{"sleep", "100"}, {}, {}});
  EXPECT_EQ(child->poll(), std::nullopt);
  std::vector<Waited> waited{{child->descriptor()}};
  wait_for_any(waited, Seconds{0});
  EXPECT_FALSE(waited[0].ready);
  child->signal(SIGTERM);
  const auto end = end_of(*child);
  ASSERT_TRUE(end);
  EXPECT_EQ(end->signal, SIGTERM);
  wait_for_any(waited, Seconds{0});
  EXPECT_TRUE(waited[0].ready);
}

TEST_F(ChildTest, AProgramThatCannotBeStartedIsNamed) {
  const auto refusal = [](const ChildCommand& command) {
    try {
      start_child(command);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kUsage);
      return std::string(error.what());
    }
    return std::string("started");
  };
  EXPECT_EQ(refusal({{"trireme-no-such-program"}, {}, {}}),
            "process: start trireme-no-such-program: No such file or directory");
  EXPECT_EQ(refusal({{"/etc"}, {}, {}}), "process: start /etc: Permission denied");
  EXPECT_EQ(refusal({{"true"}, {}, "/no/such/folder/x"}), "process: open /no/such/folder/x: No such file or directory");
}

TEST_F(ChildTest, StartsItsFileUnderTheNameOfItsFirstArgument) {
  ChildCommand command = shell("echo \"$0\"");
  command.arguments.front() = "another";
  command.file = "/bin/sh";
  command.arguments.push_back("name");
  EXPECT_EQ(output_of(command), "name\n");
  command.file = "/no/such/program";
  EXPECT_THROW(start_child(command), Error);
  EXPECT_TRUE(is_own_program(own_program()));
  EXPECT_FALSE(is_own_program("/bin/sh"));
  EXPECT_FALSE(is_own_program("/no/such/program"));
}

TEST_F(ChildTest, GetsArgumentsAndEnvironmentAsTheyAre) {
  ::setenv("TRIREME_CHILD_TEST", "old", 1);
  ::setenv("TRIREME_CHILD_KEPT", "kept", 1);
  ChildCommand command = shell("echo \"$1|$TRIREME_CHILD_TEST|$TRIREME_CHILD_KEPT|$TRIREME_CHILD_NEW\"; echo err >&2");
  command.arguments.insert(command.arguments.end(), {"sh", "a b $c"});
  command.environment = {{"TRIREME_CHILD_TEST", "new"}, {"TRIREME_CHILD_NEW", "x=y"}};
  EXPECT_EQ(output_of(command), "a b $c|new|kept|x=y\nerr\n");
  ::unsetenv("TRIREME_CHILD_TEST");
  ::unsetenv("TRIREME_CHILD_KEPT");
}

TEST_F(ChildTest, AddsToItsOutput) {
  ASSERT_EQ(output_of(shell("echo first")), "first\n");
  ChildCommand command = shell("echo second");
  command.output = output_;
  const auto child = start_child(command);
  ASSERT_TRUE(end_of(*child));
  EXPECT_EQ(read(output_), "first\nsecond\n");
}

TEST_F(ChildTest, HasNoInputNoDescriptorNoSignalOfItsParent) {
  const int left_open = ::fcntl(STDERR_FILENO, F_DUPFD, 200);
  ASSERT_GE(left_open, 200);
  sigset_t blocked;
  sigset_t before;
  ::sigemptyset(&blocked);
  ::sigaddset(&blocked, SIGUSR2);
  ::pthread_sigmask(SIG_BLOCK, &blocked, &before);
  const auto pipe_before = std::signal(SIGPIPE, SIG_IGN);
  // One of those that the library keeps to itself, as some parents leave it.
  const std::array<std::uint64_t, 8> ignore{1};
  const std::array<std::uint64_t, 8> zeros{};
  ASSERT_EQ(::syscall(SYS_rt_sigaction, 33, ignore.data(), nullptr, 8), 0);
  const std::string status = output_of({{"cat", "-", "/proc/self/status"}, {}, {}});
  const std::string open =
      output_of(shell("[ -e /proc/self/fd/" + std::to_string(left_open) + " ] && echo open || echo closed"));
  ::syscall(SYS_rt_sigaction, 33, zeros.data(), nullptr, 8);
  std::signal(SIGPIPE, pipe_before);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ::close(left_open);
  EXPECT_NE(status.find("SigBlk:\t0000000000000000\n"), std::string::npos) << status;
  EXPECT_NE(status.find("SigIgn:\t0000000000000000\n"), std::string::npos) << status;
  EXPECT_EQ(open, "closed\n");
}

// Of a script that starts a process of its own and says its number.
pid_t number_said(const std::string& path) {
  const double until = now() + 10;
  while (now() < until) {
    pid_t number = 0;
    char end = 0;
    std::ifstream file(path);
    if (file >> number && file.get(end) && end == '\n') return number;
    posix_env().sleep(Seconds{0.01});
  }
  return -1;
}

TEST_F(ChildTest, LeadsAGroupThatIsSignalledAsOne) {
  ChildCommand command = shell("sleep 100 & echo $!; wait");
  command.output = output_;
  const auto child = start_child(command);
  EXPECT_EQ(::getpgid(static_cast<pid_t>(child->id())), child->id());
  const Watched grandchild(number_said(output_));
  ASSERT_TRUE(grandchild.found());
  child->signal_group(SIGKILL);
  EXPECT_TRUE(grandchild.ends_within(10));
  ASSERT_TRUE(end_of(*child));
}

TEST_F(ChildTest, TheGroupOfOneThatHasEndedIsStillReached) {
  ChildCommand command = shell("sleep 100 & echo $!; exit 0");
  command.output = output_;
  const auto child = start_child(command);
  const Watched grandchild(number_said(output_));
  ASSERT_TRUE(grandchild.found());
  ASSERT_TRUE(end_of(*child));
  EXPECT_FALSE(grandchild.ends_within(0.05));
  child->signal_group(SIGKILL);
  EXPECT_TRUE(grandchild.ends_within(10));
}

TEST_F(ChildTest, IsKilledWithItsGroupWhenDropped) {
  ChildCommand command = shell("trap '' TERM; sleep 100 & echo $!; wait");
  command.output = output_;
  auto child = start_child(command);
  const Watched self(static_cast<pid_t>(child->id()));
  const Watched grandchild(number_said(output_));
  ASSERT_TRUE(self.found() && grandchild.found());
  const auto id = static_cast<pid_t>(child->id());
  child.reset();
  EXPECT_TRUE(self.ends_within(0));
  EXPECT_TRUE(grandchild.ends_within(10));
  EXPECT_EQ(::kill(id, 0), -1);  // collected
}

TEST_F(ChildTest, ACopyGoesOnFromTheFork) {
  const auto child = fork_child();
  if (child == nullptr) ::_exit(::getpgid(0) == ::getpid() ? 5 : 6);
  const auto end = end_of(*child);
  ASSERT_TRUE(end);
  EXPECT_EQ(end->code, 5);
  EXPECT_EQ(end->signal, 0);
}

TEST_F(ChildTest, ACopyLeavesTheOthersAlone) {
  auto sleeper = start_child({{"sleep", "100"}, {}, {}});
  const auto copy = fork_child();
  if (copy == nullptr) {
    sleeper.reset();
    ::_exit(0);
  }
  ASSERT_TRUE(end_of(*copy));
  EXPECT_EQ(sleeper->poll(), std::nullopt);
}

#ifndef __SANITIZE_THREAD__  // whose own thread cannot be told from ours
TEST_F(ChildTest, OnlyOneThreadMayFork) {
  std::atomic<bool> done = false;
  std::thread other([&] {
    while (!done) posix_env().sleep(Seconds{0.01});
  });
  EXPECT_THROW(fork_child(), InternalError);
  done = true;
  other.join();
}
#endif

// A copy of this process starts two children, says their numbers and is killed.
TEST_F(ChildTest, EndsWithItsParent) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  const auto parent = fork_child();
  if (parent == nullptr) {
    const auto program = start_child({{"sleep", "100"}, {}, {}});
    const auto copy = fork_child();
    if (copy == nullptr) {
      while (true) ::pause();
    }
    const std::array<std::int64_t, 2> ids{program->id(), copy->id()};
    if (::write(ends[1], ids.data(), sizeof(ids)) != sizeof(ids)) ::_exit(1);
    while (true) ::pause();
  }
  std::array<std::int64_t, 2> ids{};
  std::vector<Waited> waited{{ends[0]}};
  wait_for_any(waited, Seconds{10});
  ASSERT_TRUE(waited[0].ready);
  ASSERT_EQ(::read(ends[0], ids.data(), sizeof(ids)), static_cast<ssize_t>(sizeof(ids)));
  const Watched program(static_cast<pid_t>(ids[0]));
  const Watched copy(static_cast<pid_t>(ids[1]));
  ASSERT_TRUE(program.found() && copy.found());
  EXPECT_FALSE(program.ends_within(0.05));
  EXPECT_FALSE(copy.ends_within(0));
  parent->signal(SIGKILL);
  EXPECT_TRUE(program.ends_within(10));
  EXPECT_TRUE(copy.ends_within(10));
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST_F(ChildTest, KnowsItsOwnProgram) {
  EXPECT_TRUE(std::filesystem::equivalent(own_program(), "/proc/self/exe")) << own_program();
}

TEST(Child, OneThatIsDeafLivesOnThroughStopSignals) {
  for (const bool deaf : {false, true}) {
    ChildCommand command = shell("kill -TERM $$; exit 3");
    command.deaf = deaf;
    const std::unique_ptr<Child> child = start_child(command);
    const std::optional<ChildEnd> end = end_of(*child);
    ASSERT_TRUE(end);
    EXPECT_EQ(end->signal, deaf ? 0 : 15);
    EXPECT_EQ(end->code, deaf ? 3 : 0);
  }
}

}  // namespace
}  // namespace trireme
