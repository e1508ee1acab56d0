#include "base/log.h"

#include <mutex>

#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>

namespace trireme {
namespace {

spdlog::level::level_enum spdlog_level(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      break;
  }
  return spdlog::level::err;
}

std::string_view first_word(LogLevel level) {
  if (level == LogLevel::kWarning) return "warning: ";
  if (level == LogLevel::kError) return "error: ";
  return "";
}

class StderrLog : public Log {
 public:
  explicit StderrLog(LogLevel least) : logger_("trireme", std::make_shared<spdlog::sinks::stderr_sink_mt>()) {
    logger_.set_pattern("%v");
    logger_.set_level(spdlog_level(least));
    logger_.flush_on(spdlog::level::trace);
  }

  void write(LogLevel level, std::string_view line) override {
    logger_.log(spdlog_level(level), "{}{}", first_word(level), line);
  }

 private:
  spdlog::logger logger_;
};

}  // namespace

std::unique_ptr<Log> make_stderr_log(LogLevel least) { return std::make_unique<StderrLog>(least); }

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
