#include "base/log.h"

#include <thread>

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/fake_env.h"

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

TEST(LogOfLogsTest, EachGetsEveryLine) {
  MemoryLog one, other;
  const std::unique_ptr<Log> both = make_log_of({&one, &other});
  both->warning("rank {} is slow", 3);
  EXPECT_EQ(one.lines(), (std::vector{std::pair(LogLevel::kWarning, std::string("rank 3 is slow"))}));
  EXPECT_EQ(other.lines(), one.lines());
}

TEST(FileLogTest, AppendsLinesWithTheirTimes) {
  FakeEnv env;
  env.put_file("a.log", "before\n");
  FileLog log(env);
  log.info("kept until {}", "now");
  env.advance(Seconds{3661});
  log.open("a.log");
  log.warning("of\ntwo lines");
  EXPECT_EQ(env.content("a.log"),
            "before\n2000-01-01T00:00:00Z kept until now\n2000-01-01T01:01:01Z warning: of\n"
            "2000-01-01T01:01:01Z warning: two lines\n");
}

TEST(FileLogTest, KeepsTheNewestLinesUntilItIsOpened) {
  FakeEnv env;
  FileLog log(env);
  for (std::size_t i = 0; i <= FileLog::kKept; ++i) log.info("{}", i);
  log.open("a.log");
  const std::string text = env.content("a.log");
  EXPECT_EQ(text.substr(0, text.find('\n')), "2000-01-01T00:00:00Z 1");
  EXPECT_EQ(static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')), FileLog::kKept);
}

TEST(FileLogTest, AFailingDiskLosesLinesAndNothingElse) {
  FakeEnv env;
  FileLog log(env);
  log.open("a.log");
  log.info("there");
  env.fail_operation(1);
  log.info("lost");
  log.info("lost too");
  env.fail_from_operation(1);
  log.info("lost three");
  env.fail_operation(0);
  EXPECT_EQ(env.content("a.log"),
            "2000-01-01T00:00:00Z there\n2000-01-01T00:00:00Z warning: 1 texts before this are "
            "lost: the disk had no room\n2000-01-01T00:00:00Z lost too\n");
  FileLog other(env);
  env.fail_operation(1);
  EXPECT_THROW(other.open("b.log"), Error);
}

// A line of which a part is there does not stay glued to the next.
TEST(FileLogTest, AFullDiskTearsNoOtherLine) {
  FakeEnv env;
  FileLog log(env);
  log.open("a.log");
  log.info("there");
  env.limit_bytes(static_cast<std::int64_t>(env.content("a.log").size()) + 12);
  log.info("torn");
  log.info("lost");
  env.limit_bytes(-1);
  log.info("whole");
  log.info("again");
  EXPECT_EQ(env.content("a.log"),
            "2000-01-01T00:00:00Z there\n2000-01-01T0\n2000-01-01T00:00:00Z warning: 2 texts before this are lost: the "
            "disk had no room\n2000-01-01T00:00:00Z whole\n2000-01-01T00:00:00Z again\n");
}

}  // namespace
}  // namespace trireme
