#include "engine/train/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme::train {
namespace {

using testing::ElementsAre;

telemetry::StepRecord record(std::int64_t step) {
  return {.step = step, .loss = 2.25, .tokens_per_s = 31234.0, .mfu = 0.4, .step_s = 0.5, .resident_bytes = 412000000};
}

// What a run of equal steps shows.
struct Shown {
  explicit Shown(int columns) : screen([this](std::string_view text) { out += text; }, [columns] { return columns; }) {}
  std::string out;
  Screen screen;

  // The steps of lines that stay.
  std::vector<int> steps() const {
    std::vector<int> steps;
    for (std::size_t begin = 0, end = 0; (end = out.find('\n', begin)) != std::string::npos; begin = end + 1) {
      const std::string line = out.substr(begin, end - begin);
      steps.push_back(std::stoi(line.substr(line.rfind("step ") + 5)));
    }
    return steps;
  }
};

std::vector<int> run(Shown& shown, std::int64_t steps, std::int64_t interval, double step_s,
                     std::optional<std::int64_t> validated = std::nullopt, std::int64_t first = 1) {
  Progress progress(&shown.screen, steps, interval, Seconds{0});
  double now = 0;
  for (std::int64_t step = first; step <= steps; ++step) {
    telemetry::StepRecord one = record(step);
    if (step == validated) one.validation_loss = 2.5;
    progress.step(one, Seconds{now += step_s});
  }
  return shown.steps();
}

TEST(Progress, AStatusOnATerminalAndALineForWhatStays) {
  Shown shown(120);
  EXPECT_THAT(run(shown, 9, 0, 1.0, 5), ElementsAre(5, 9));
  EXPECT_NE(shown.out.find("step 5/9  loss 2.2500  validation 2.5000"), std::string::npos);
  EXPECT_NE(shown.out.find("\rstep 8/9"), std::string::npos);
}

TEST(Progress, AStatusIsWrittenTenTimesASecondAtMost) {
  Shown shown(80);
  run(shown, 1000, 0, 0.001);
  const auto written = std::count(shown.out.begin(), shown.out.end(), '\r');
  EXPECT_GE(written, 8);
  EXPECT_LE(written, 14);
}

TEST(Progress, PlainLinesAtTheIntervalThatIsAskedFor) {
  Shown shown(0);
  EXPECT_THAT(run(shown, 25, 10, 0.001), ElementsAre(1, 10, 20, 25));
  EXPECT_EQ(shown.out.find('\r'), std::string::npos);
  Shown each(0);
  EXPECT_EQ(run(each, 25, 1, 0.001).size(), 25U);
}

TEST(Progress, LinesNowAndThenOtherwise) {
  Shown fast(0), resumed(0), minutes(0);
  EXPECT_THAT(run(fast, 5000, 0, 1.0 / 1024, 77), ElementsAre(1, 2, 3, 77, 77 + 2048, 77 + 4096, 5000));
  EXPECT_THAT(run(resumed, 110, 0, 0.001, std::nullopt, 100), ElementsAre(100, 101, 102, 110));
  EXPECT_EQ(run(minutes, 10, 0, 60.0).size(), 10U);  // nothing is left out where a step is long
  Shown hour(0), day(0);
  EXPECT_LT(run(hour, 36000, 0, 0.1).size(), 150U);
  const std::vector<int> steps = run(day, 24 * 3600, 0, 1.0);
  EXPECT_LT(steps.size(), 1550U);
  EXPECT_EQ(steps[steps.size() - 2] - steps[steps.size() - 3], 60);
}

TEST(Progress, TheLastStepHasALineHoweverTheRunEnds) {
  Shown file(0), terminal(80);
  for (Shown* shown : {&file, &terminal}) {
    {
      Progress progress(&shown->screen, 100, 50, Seconds{0});
      for (std::int64_t step = 1; step <= 7; ++step)
        progress.step(record(step), Seconds{0.01 * static_cast<double>(step)});
    }
    EXPECT_EQ(shown->steps().back(), 7);
    EXPECT_EQ(shown->out.back(), '\n');
  }
  Progress nobody(nullptr, 100, 0, Seconds{0});
  nobody.step(record(1), Seconds{1});
}

TEST(Progress, TheFieldsSayEverything) {
  EXPECT_THAT(progress_fields(record(120), 400, 42.0),
              ElementsAre("step 120/400", "loss 2.2500", "31.2k tok/s", "MFU 40.0%", "ETA 0:42", "412.00 MB"));
  telemetry::StepRecord taken = record(120);
  taken.mfu.reset();
  EXPECT_EQ(progress_fields(taken, 400, 42.0)[3], "MFU not known");
  EXPECT_EQ(format_clock(3723), "1:02:03");
}

}  // namespace
}  // namespace trireme::train
