#include "base/stop_signals.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

namespace trireme {
namespace {

constexpr int kStopSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};

// A handler reaches nothing but statics.
std::atomic<bool> requested{false};
const char* volatile notice_text = nullptr;
std::atomic<int> preempted{0};
std::atomic<int> by_user{0};

void on_supervisor_signal(int signal) { (signal == SIGTERM || signal == SIGUSR1 ? preempted : by_user).fetch_add(1); }

void on_signal(int) {
  const int saved = errno;
  requested.store(true);
  const char* text = notice_text;
  if (text != nullptr && ::write(STDERR_FILENO, text, std::strlen(text)) < 0) {
    // Nobody to tell.
  }
  errno = saved;
}

}  // namespace

void catch_stop_signals(const char* notice) {
  notice_text = notice;
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESETHAND | SA_RESTART;
  for (int signal : kStopSignals) ::sigaction(signal, &action, nullptr);
}

bool stop_requested() { return requested.load(); }

void catch_supervisor_signals() {
  struct sigaction action = {};
  action.sa_handler = on_supervisor_signal;  // no SA_RESTART: a wait returns early
  for (int signal : kStopSignals) ::sigaction(signal, &action, nullptr);
}

StopCounts stop_counts() { return {.preempted = preempted.load(), .user = by_user.load()}; }

void ignore_stop_signals() {
  for (int signal : kStopSignals) ::signal(signal, SIG_IGN);
}

void ignore_broken_pipes() { ::signal(SIGPIPE, SIG_IGN); }

}  // namespace trireme
