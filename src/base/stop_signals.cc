#include "base/stop_signals.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

namespace trireme {
namespace {

// A handler reaches nothing but statics.
std::atomic<bool> requested{false};
const char* volatile notice_text = nullptr;

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
  for (int signal : {SIGINT, SIGTERM, SIGHUP}) ::sigaction(signal, &action, nullptr);
}

bool stop_requested() { return requested.load(); }

void ignore_broken_pipes() { ::signal(SIGPIPE, SIG_IGN); }

}  // namespace trireme
