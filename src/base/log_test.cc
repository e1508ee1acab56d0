#include "base/log.h"

#include <thread>

#include <gtest/gtest.h>

namespace trireme {
namespace {

TEST(MemoryLogTest, KeepsLinesInOrderWithTheirLevel) {
  MemoryLog log;
  log.info("step {} of {}", 3, 10);
  log.warning("slow");
  log.error("rank {} lost", 7);
  const auto lines = log.lines();
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0], std::pair(LogLevel::kInfo, std::string("step 3 of 10")));
  EXPECT_EQ(lines[1], std::pair(LogLevel::kWarning, std::string("slow")));
  EXPECT_EQ(lines[2], std::pair(LogLevel::kError, std::string("rank 7 lost")));
}

TEST(MemoryLogTest, ThreadsLoseNoLine) {
  MemoryLog log;
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&log] {
      for (int i = 0; i < 250; ++i) log.info("{}", i);
    });
  }
  threads.clear();
  EXPECT_EQ(log.lines().size(), 1000u);
}

TEST(StderrLogTest, PlainLinesWithTheLevelInFrontOfTrouble) {
  testing::internal::CaptureStderr();
  {
    const std::unique_ptr<Log> log = make_stderr_log();
    log->write(LogLevel::kDebug, "not shown");
    log->info("plain {{}} braces");
    log->write(LogLevel::kInfo, "raw {} braces");
    log->warning("careful");
    log->error("broken");
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "plain {} braces\nraw {} braces\nwarning: careful\nerror: broken\n");
}

TEST(StderrLogTest, TheLeastLevelIsRespected) {
  testing::internal::CaptureStderr();
  const std::unique_ptr<Log> log = make_stderr_log(LogLevel::kError);
  log->warning("careful");
  log->error("broken");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "error: broken\n");
}

}  // namespace
}  // namespace trireme
