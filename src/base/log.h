#pragma once

// Messages to people, on standard error. Results go to standard output and never through here.
// A Log is passed in, so that a test can collect the lines. Thread-safe.

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/env.h"

namespace trireme {

class Screen;

enum class LogLevel { kDebug, kInfo, kWarning, kError };

class Log {
 public:
  virtual ~Log() = default;
  virtual void write(LogLevel level, std::string_view line) = 0;

  template <class... Args>
  void info(fmt::format_string<Args...> text, Args&&... args) {
    write(LogLevel::kInfo, fmt::format(text, std::forward<Args>(args)...));
  }
  template <class... Args>
  void warning(fmt::format_string<Args...> text, Args&&... args) {
    write(LogLevel::kWarning, fmt::format(text, std::forward<Args>(args)...));
  }
  template <class... Args>
  void error(fmt::format_string<Args...> text, Args&&... args) {
    write(LogLevel::kError, fmt::format(text, std::forward<Args>(args)...));
  }
};

// Standard error, plain lines; warnings and errors carry their level as the first word.
std::unique_ptr<Log> make_stderr_log(LogLevel least = LogLevel::kInfo);
// The same on a screen that shows a status too, and outlives the log.
std::unique_ptr<Log> make_log_on(Screen& screen, LogLevel least = LogLevel::kInfo);

// Writes every line to each of `logs`, which outlive it.
std::unique_ptr<Log> make_log_of(std::vector<Log*> logs);

// Lines appended to a file, the time (UTC) in front of each. Nothing that it logs is worth the end of a run, or a
// wait: while the disk is full lines are lost, and the first that fits says how many.
class FileLog : public Log {
 public:
  explicit FileLog(Env& env);
  // From now on into this file, those from before first: the newest kKept of them. Error(kStorage).
  void open(const std::string& path);
  void write(LogLevel level, std::string_view line) override;

  static constexpr std::size_t kKept = 1000;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// Keeps lines in memory: for tests.
class MemoryLog : public Log {
 public:
  MemoryLog();
  void write(LogLevel level, std::string_view line) override;
  std::vector<std::pair<LogLevel, std::string>> lines() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace trireme
