#include "base/stop_signals.h"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <optional>
#include <thread>

#include "base/env.h"

namespace trireme {
namespace {

constexpr int kOfSchedulers[] = {SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU, SIGPWR};
constexpr Seconds kOneRequest{1};  // of a scheduler or launcher that tells a process twice
constexpr int kOfUsers[] = {SIGINT, SIGQUIT, SIGHUP};

// A handler reaches nothing but statics.
std::atomic<bool> requested{false};
std::atomic<int> preempted{0};
std::atomic<int> by_user{0};
std::atomic<int> suspended{0};

void on_scheduler_signal(int) { preempted.fetch_add(1); }
void on_user_signal(int) { by_user.fetch_add(1); }
void on_suspension(int) { suspended.fetch_add(1); }

bool is_ignored(int signal) {
  struct sigaction action = {};
  return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

// Of a thread of its own, to which alone they come.
void wait_for_stop_signals(const sigset_t& caught, const char* notice) {
  int signal = 0;
  std::optional<Seconds> first;
  while (::sigwait(&caught, &signal) == 0) {
    const Seconds now = posix_env().now();
    if (first && now.count - first->count > kOneRequest.count) break;
    (std::ranges::find(kOfUsers, signal) != std::end(kOfUsers) ? by_user : preempted).fetch_add(1);
    if (first) continue;
    first = now;
    requested.store(true);
    if (::write(STDERR_FILENO, notice, std::strlen(notice)) < 0) continue;  // nobody to tell
  }
  ::signal(signal, SIG_DFL);
  release_stop_signals();
  ::raise(signal);
}

// By the kernel's own call: the library may not have begun.
void change_mask(int how) {
  const std::uint64_t mask = stop_signal_mask();
  ::syscall(SYS_rt_sigprocmask, how, &mask, nullptr, sizeof(mask));
}

void install(int signal, void (*handler)(int), int flags) {
  if (signal == SIGHUP && is_ignored(signal)) return;
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  ::sigaction(signal, &action, nullptr);
}

void install_all(void (*schedulers)(int), void (*users)(int), int flags) {
  for (const int signal : kOfSchedulers) install(signal, schedulers, flags);
  for (const int signal : kOfUsers) install(signal, users, flags);
  release_stop_signals();
}

}  // namespace

std::uint64_t stop_signal_mask() {
  std::uint64_t mask = 0;
  for (const int signal : kOfSchedulers) mask |= std::uint64_t{1} << (signal - 1);
  for (const int signal : kOfUsers) mask |= std::uint64_t{1} << (signal - 1);
  return mask;
}

void hold_stop_signals() { change_mask(SIG_BLOCK); }

void release_stop_signals() { change_mask(SIG_UNBLOCK); }

void catch_stop_signals(const char* notice) {
  sigset_t caught;
  ::sigemptyset(&caught);
  for (const int signal : kOfSchedulers) ::sigaddset(&caught, signal);
  for (const int signal : kOfUsers) {
    if (signal != SIGHUP || !is_ignored(signal)) ::sigaddset(&caught, signal);
  }
  hold_stop_signals();
  std::thread([caught, notice] { wait_for_stop_signals(caught, notice); }).detach();
}

bool stop_requested() { return requested.load(); }

// No SA_RESTART: a wait returns early.
void catch_supervisor_signals() { install_all(on_scheduler_signal, on_user_signal, 0); }

void catch_suspension() {
  if (is_ignored(SIGTSTP)) return;
  install(SIGTSTP, on_suspension, 0);
}

StopCounts stop_counts() {
  return {.preempted = preempted.load(), .user = by_user.load(), .suspended = suspended.load()};
}

void ignore_stop_signals() { install_all(SIG_IGN, SIG_IGN, 0); }

void suspend_this_process() { ::kill(::getpid(), SIGSTOP); }

void ignore_broken_pipes() { ::signal(SIGPIPE, SIG_IGN); }
void ignore_file_size_signals() { ::signal(SIGXFSZ, SIG_IGN); }

}  // namespace trireme
