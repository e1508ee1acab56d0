#include "base/child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/descriptor.h"
#include "base/env.h"
#include "base/error.h"
#include "base/limit_failure.h"
#include "base/stop_signals.h"

namespace trireme {
namespace {

constexpr int kNotStarted = 127;  // as shells have it; nobody sees it
constexpr int kEndWithin_ms = 5000;
constexpr std::string_view kRemoved = " (deleted)";  // what the system adds to the path of a file that is gone
constexpr unsigned kCloseOnExec = 4;                 // CLOSE_RANGE_CLOEXEC, which older headers do not have

[[noreturn]] void fail(const std::string& what, int reason) {
  const bool no_program = reason == ENOENT || reason == EACCES;
  const std::string limit = limit_failure(std::system_error(reason, std::generic_category()));
  const char* place = "is it installed, and in PATH? supervise.mpirun and supervise.srun name the launchers";
  if (!limit.empty()) throw Error(ExitCode::kDoesNotFit, "process", what, limit);
  throw Error(no_program ? ExitCode::kUsage : ExitCode::kInternal, "process", what,
              std::generic_category().message(reason), no_program ? place : "");
}

// Until it is destroyed, the child is looked at but not collected: its number, and with it that of its group, stays
// taken, so that no signal can go to a stranger that has got the number since.
class SystemChild : public Child {
 public:
  explicit SystemChild(pid_t id, Descriptor output = Descriptor())
      : id_(id), parent_(::getpid()), output_(std::move(output)) {
    ::setpgid(id_, id_);  // as the child does itself: whoever is first
    descriptor_ = Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, id_, 0)));
    if (descriptor_.number() >= 0) return;
    const int reason = errno;
    end();
    fail("watch a child", reason);
  }
  ~SystemChild() override {
    if (::getpid() == parent_) end();  // in a copy of the parent it is not this process's child
  }

  std::int64_t id() const override { return id_; }
  std::optional<ChildEnd> poll() override {
    siginfo_t info = {};
    while (::waitid(P_PID, static_cast<id_t>(id_), &info, WEXITED | WNOHANG | WNOWAIT) != 0) {
      if (errno != EINTR) fail("look at a child", errno);
    }
    if (info.si_pid == 0) return std::nullopt;
    if (info.si_code == CLD_EXITED) return ChildEnd{0, info.si_status};
    return ChildEnd{info.si_status, 0};
  }
  void signal(int number) override { ::kill(id_, number); }
  void signal_group(int number) override { ::kill(-id_, number); }
  int descriptor() const override { return descriptor_.number(); }
  int take_output() override { return output_.release(); }

 private:
  // A child that the system cannot end in time (it hangs in a device) is left to it.
  void end() {
    ::kill(-id_, SIGKILL);
    ::kill(id_, SIGKILL);
    if (descriptor_.number() >= 0) {
      pollfd entry{descriptor_.number(), POLLIN, 0};
      while (::poll(&entry, 1, kEndWithin_ms) < 0 && errno == EINTR) {
      }
    }
    while (::waitpid(id_, nullptr, descriptor_.number() >= 0 ? WNOHANG : 0) < 0 && errno == EINTR) {
    }
  }

  pid_t id_;
  pid_t parent_;
  Descriptor output_;
  Descriptor descriptor_;
};

// From here to exec: the child's side. Only calls that are safe after a fork beside other threads: no allocation.

void become_dependent(pid_t parent) {
  ::setpgid(0, 0);
  // A parent that was gone before this was asked for sends no signal any more.
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || ::getppid() != parent) ::_exit(kNotStarted);
}

void keep_from_programs(unsigned first) {
  if (::syscall(SYS_close_range, first, ~0U, kCloseOnExec) == 0) return;
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  for (rlim_t i = first; i < limit.rlim_cur; ++i) ::fcntl(static_cast<int>(i), F_SETFD, FD_CLOEXEC);
}

// By the kernel's own calls: the library's pass over the two signals that it keeps for its threads, which a parent of
// another kind may have left ignored.
void reset_signals(std::uint64_t blocked) {
  constexpr std::size_t kMaskBytes = 8;
  const std::array<std::uint64_t, 8> zeros{};      // handler SIG_DFL, no flags, an empty mask
  for (int number = 1; number < NSIG; ++number) {  // some refuse: kill, stop
    ::syscall(SYS_rt_sigaction, number, zeros.data(), nullptr, kMaskBytes);
  }
  ::syscall(SYS_rt_sigprocmask, SIG_SETMASK, &blocked, nullptr, kMaskBytes);
}

// All that the child needs, made before the fork.
struct Prepared {
  const char* file = nullptr;
  std::vector<char*> arguments;
  std::vector<std::string> variables;
  std::vector<char*> environment;
  std::uint64_t blocked = 0;  // signals
  Descriptor null;            // /dev/null
  Descriptor output;          // none: the parent's
  Descriptor report;          // gets the reason as an int where exec fails
};

// A launcher may not bear an output that cannot be written, such as the one that stands for none.
bool place_output(int number, int output, int null) {
  if (output >= 0) return ::dup2(output, number) >= 0;
  const int flags = ::fcntl(number, F_GETFL);
  const bool writable = flags >= 0 && (flags & O_ACCMODE) != O_RDONLY;
  return writable || ::dup2(null, number) >= 0;
}

[[noreturn]] void run_program(const Prepared& prepared, pid_t parent) {
  become_dependent(parent);
  const int null = prepared.null.number();
  if (::dup2(null, STDIN_FILENO) >= 0 && place_output(STDOUT_FILENO, prepared.output.number(), null) &&
      place_output(STDERR_FILENO, prepared.output.number(), null)) {
    keep_from_programs(STDERR_FILENO + 1);
    reset_signals(prepared.blocked);
    ::execvpe(prepared.file, prepared.arguments.data(), prepared.environment.data());
  }
  const int reason = errno;
  if (::write(prepared.report.number(), &reason, sizeof(reason)) < 0) ::_exit(kNotStarted);
  ::_exit(kNotStarted);
}

// ---- The parent's side.

// Above the three standard ones, whichever of them this process lacks: dup2 onto them must not hit a source.
Descriptor above_standard(int number, const std::string& what) {
  const Descriptor original(number);
  const int moved = number < 0 ? -1 : ::fcntl(number, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  if (moved < 0) fail(what, errno);
  return Descriptor(moved);
}

std::vector<std::string> joined_environment(const ChildCommand& command) {
  std::vector<std::string> variables;
  for (char** one = environ; one != nullptr && *one != nullptr; ++one) {
    const std::string_view text(*one);
    const std::string_view name = text.substr(0, text.find('='));
    bool replaced =
        std::ranges::any_of(command.without, [&](const std::string& beginning) { return name.starts_with(beginning); });
    for (const auto& [key, value] : command.environment) replaced = replaced || key == name;
    if (!replaced) variables.emplace_back(text);
  }
  for (const auto& [key, value] : command.environment) variables.push_back(key + "=" + value);
  return variables;
}

Prepared prepare(const ChildCommand& command) {
  TRIREME_CHECK(!command.arguments.empty(), "no program to start");
  Prepared prepared;
  prepared.file = command.file.empty() ? command.arguments[0].c_str() : command.file.c_str();
  for (const std::string& argument : command.arguments) {
    prepared.arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  prepared.arguments.push_back(nullptr);
  prepared.variables = joined_environment(command);
  for (std::string& variable : prepared.variables) prepared.environment.push_back(variable.data());
  prepared.environment.push_back(nullptr);
  if (command.deaf) prepared.blocked = stop_signal_mask();
  prepared.null = above_standard(::open("/dev/null", O_RDWR | O_CLOEXEC), "open /dev/null");
  if (!command.output.empty()) {
    const std::string what = "open " + command.output;
    prepared.output =
        above_standard(::open(command.output.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644), what);
  }
  return prepared;
}

// 0: the program runs.
int reason_from(const Descriptor& report) {
  int reason = 0;
  ssize_t count = 0;
  do {
    count = ::read(report.number(), &reason, sizeof(reason));
  } while (count < 0 && errno == EINTR);
  return count == static_cast<ssize_t>(sizeof(reason)) ? reason : 0;
}

}  // namespace

std::unique_ptr<Child> start_child(const ChildCommand& command) {
  Prepared prepared = prepare(command);
  const std::string what = "start " + command.arguments[0];
  std::array<int, 2> ends{-1, -1};
  Descriptor output;
  if (command.captured) {
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) fail(what, errno);
    output = Descriptor(ends[0]);
    prepared.output = above_standard(ends[1], what);
  }
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) fail(what, errno);
  const Descriptor report(ends[0]);
  prepared.report = above_standard(ends[1], what);
  // No handler of this process may run in the child, which shares nothing with it but the code.
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t parent = ::getpid();
  const pid_t id = ::fork();
  if (id == 0) run_program(prepared, parent);
  const int refused = errno;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (id < 0) fail(what, refused);
  auto child = std::make_unique<SystemChild>(id, std::move(output));
  prepared.report.close();
  prepared.output.close();
  if (const int reason = reason_from(report); reason != 0) fail(what, reason);
  return child;
}

std::unique_ptr<Child> fork_child() {
#ifndef __SANITIZE_THREAD__  // the sanitizer has a thread of its own
  TRIREME_CHECK_EQ(posix_env().list_directory("/proc/self/task").size(), std::size_t{1});
#endif
  std::fflush(nullptr);  // else what waits to be written is written twice
  const pid_t parent = ::getpid();
  const pid_t id = ::fork();
  if (id < 0) fail("fork", errno);
  if (id > 0) return std::make_unique<SystemChild>(id);
  become_dependent(parent);
  return nullptr;
}

Result<std::string> find_program(const std::string& name) {
  const auto refused = [&](std::string rule) {
    return Failure{.option = "program", .value = name, .rule = std::move(rule), .nearest = ""};
  };
  struct stat about = {};
  if (name.find('/') != std::string::npos) {
    if (::stat(name.c_str(), &about) != 0) return refused("there is no such file");
    if (!S_ISREG(about.st_mode)) return refused("is no file");
    if (::access(name.c_str(), X_OK) != 0) return refused("is not executable");
    return name;
  }
  const char* path = std::getenv("PATH");
  for (std::string_view rest = path == nullptr ? "/bin:/usr/bin" : path; !name.empty();) {
    const std::size_t end = std::min(rest.find(':'), rest.size());
    const std::string file = join_path(std::string(end == 0 ? "." : rest.substr(0, end)), name);
    const bool runs = ::stat(file.c_str(), &about) == 0 && S_ISREG(about.st_mode) && ::access(file.c_str(), X_OK) == 0;
    if (runs) return file;
    if (end == rest.size()) break;
    rest.remove_prefix(end + 1);
  }
  return refused("is not in PATH");
}

std::string own_program() {
  std::string path(4096, '\0');
  const ssize_t length = ::readlink(kOwnProgram, path.data(), path.size());
  if (length < 0) fail("read /proc/self/exe", errno);
  path.resize(static_cast<std::size_t>(length));
  if (path.ends_with(kRemoved) && !is_own_program(path)) path.resize(path.size() - kRemoved.size());
  return path;
}

bool is_own_program(const std::string& path) {
  struct stat there {};
  struct stat own {};
  if (::stat(kOwnProgram, &own) != 0 || ::stat(path.c_str(), &there) != 0) return false;
  return there.st_dev == own.st_dev && there.st_ino == own.st_ino;
}

}  // namespace trireme
