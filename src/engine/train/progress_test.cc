#include "engine/train/progress.h"

#include <gtest/gtest.h>

namespace trireme::train {
namespace {

telemetry::StepRecord record(std::int64_t step) {
  return {.step = step, .loss = 2.25, .tokens_per_s = 31234.0, .mfu = 0.4, .step_s = 0.5, .resident_bytes = 412000000};
}

TEST(Progress, OneLineOnATerminal) {
  std::string out;
  Progress progress(true, 3, 10, [&](const std::string& text) { out += text; });
  for (std::int64_t step = 1; step <= 3; ++step) progress.step(record(step));
  progress.finish();
  EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 1);
  EXPECT_EQ(std::count(out.begin(), out.end(), '\r'), 3);
}

TEST(Progress, PlainLinesAtTheIntervalOtherwise) {
  std::string out;
  Progress progress(false, 25, 10, [&](const std::string& text) { out += text; });
  for (std::int64_t step = 1; step <= 25; ++step) progress.step(record(step));
  progress.finish();
  EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 4);  // 1, 10, 20 and the last
  EXPECT_EQ(out.find('\r'), std::string::npos);
}

TEST(Progress, TheLineSaysEverything) {
  const std::string line = progress_line(record(120), 400, 42.0);
  for (const char* part : {"step 120/400", "loss 2.2500", "31.2k tok/s", "MFU 40.0%", "ETA 0:42", "412.00 MB"}) {
    EXPECT_NE(line.find(part), std::string::npos) << part << " in " << line;
  }
  telemetry::StepRecord taken = record(120);
  taken.mfu.reset();
  EXPECT_NE(progress_line(taken, 400, 42.0).find("MFU not known  ETA"), std::string::npos);
  EXPECT_EQ(format_clock(3723), "1:02:03");
}

}  // namespace
}  // namespace trireme::train
