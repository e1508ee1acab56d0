#include "base/log.h"

#include <algorithm>
#include <deque>
#include <mutex>

#include "base/file_error.h"
#include "base/screen.h"

namespace trireme {
namespace {

std::string_view first_word(LogLevel level) {
  if (level == LogLevel::kWarning) return "warning: ";
  if (level == LogLevel::kError) return "error: ";
  return "";
}

class ScreenLog : public Log {
 public:
  ScreenLog(Screen& screen, LogLevel least) : screen_(screen), least_(least) {}

  void write(LogLevel level, std::string_view line) override {
    if (level >= least_) screen_.line(fmt::format("{}{}", first_word(level), line));
  }

 private:
  Screen& screen_;
  const LogLevel least_;
};

// With a screen of its own.
class StderrLog : public Log {
 public:
  explicit StderrLog(LogLevel least) : log_(screen_, least) {}
  void write(LogLevel level, std::string_view line) override { log_.write(level, line); }

 private:
  Screen screen_{write_to_stderr, stderr_columns};
  ScreenLog log_;
};

class LogOfLogs : public Log {
 public:
  explicit LogOfLogs(std::vector<Log*> logs) : logs_(std::move(logs)) {}
  void write(LogLevel level, std::string_view line) override {
    for (Log* log : logs_) log->write(level, line);
  }

 private:
  const std::vector<Log*> logs_;
};

// Each line of the text with the time and its level.
std::string stamped(const std::string& time, LogLevel level, std::string_view text) {
  std::string lines;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    lines += fmt::format("{} {}{}\n", time, first_word(level), text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

}  // namespace

std::unique_ptr<Log> make_stderr_log(LogLevel least) { return std::make_unique<StderrLog>(least); }

std::unique_ptr<Log> make_log_on(Screen& screen, LogLevel least) { return std::make_unique<ScreenLog>(screen, least); }

std::unique_ptr<Log> make_log_of(std::vector<Log*> logs) { return std::make_unique<LogOfLogs>(std::move(logs)); }

struct FileLog::State {
  Env& env;
  std::mutex mutex;
  bool opened = false;
  std::deque<std::string> kept = {};  // until it is opened
  std::unique_ptr<Writer> file = nullptr;
  bool torn = false;      // what is in the file does not end a line
  std::int64_t lost = 0;  // lines since the last that was written

  // A line that did not fit, or a part of it, is lost; the next one stands alone and says so.
  void append(const std::string& line) {
    const std::string told = lost == 0
                                 ? ""
                                 : stamped(env.wall_time(), LogLevel::kWarning,
                                           fmt::format("{} texts before this are lost: the disk had no room", lost));
    const std::string text = fmt::format("{}{}{}", torn ? "\n" : "", told, line);
    try {
      file->write_text(text);
      torn = false;
      lost = 0;
    } catch (const FileError& error) {
      if (error.put() > 0) torn = text[error.put() - 1] != '\n';
      ++lost;
    } catch (const Error&) {
      ++lost;
    }
  }
};

FileLog::FileLog(Env& env) : state_(new State{.env = env, .mutex = {}}) {}

void FileLog::open(const std::string& path) {
  const std::scoped_lock lock(state_->mutex);
  state_->file = state_->env.append_file(path);
  state_->opened = true;
  for (const std::string& line : std::exchange(state_->kept, {})) state_->append(line);
}

void FileLog::write(LogLevel level, std::string_view line) {
  const std::scoped_lock lock(state_->mutex);
  const std::string text = stamped(state_->env.wall_time(), level, line);
  if (!state_->opened) {
    state_->kept.push_back(text);
    if (state_->kept.size() > kKept) state_->kept.pop_front();
  } else {
    state_->append(text);
  }
}

struct MemoryLog::State {
  std::mutex mutex;
  std::vector<std::pair<LogLevel, std::string>> lines;
};

MemoryLog::MemoryLog() : state_(std::make_shared<State>()) {}

void MemoryLog::write(LogLevel level, std::string_view line) {
  const std::scoped_lock lock(state_->mutex);
  state_->lines.emplace_back(level, line);
}

std::vector<std::pair<LogLevel, std::string>> MemoryLog::lines() const {
  const std::scoped_lock lock(state_->mutex);
  return state_->lines;
}

}  // namespace trireme
