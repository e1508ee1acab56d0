#include "engine/train/save_schedule.h"

#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme::train {
namespace {

using testing::HasSubstr;
using Kind = SaveInterval::Kind;

constexpr double kMinute = 60;
constexpr double kHour = 3600;

SavePolicy automatic(double mtbf, double stall, double write = 0) {
  return {.interval = {.kind = Kind::kAuto}, .mtbf = {mtbf}, .expected_stall = {stall}, .expected_write = {write}};
}

// As many steps as news waits for; the last of them.
std::int64_t begin(SaveSchedule& schedule, double step_s, std::int64_t from = 0) {
  for (int i = 0; i < 4; ++i) schedule.step_done(++from, {step_s});
  return from;
}

SavePolicy every(const char* text) { return {.interval = parse_save_interval(text).or_throw()}; }

// Steps `from` + 1 to `to`, saved where due with the given stall and write; the steps that were saved.
std::vector<std::int64_t> drive(SaveSchedule& schedule, std::int64_t from, std::int64_t to, double step_s,
                                double stall = 0, double write = 0) {
  std::vector<std::int64_t> saves;
  for (std::int64_t step = from + 1; step <= to; ++step) {
    schedule.step_done(step, {step_s});
    if (!schedule.due(step)) continue;
    saves.push_back(step);
    schedule.saved(step, {stall});
    EXPECT_FALSE(schedule.due(step)) << "twice at step " << step;
    schedule.written({write});
  }
  return saves;
}

// --- checkpoint.interval -------------------------------------------------------------------------------------------

TEST(ParseSaveInterval, EveryKind) {
  EXPECT_EQ(*parse_save_interval("auto"), (SaveInterval{.kind = Kind::kAuto}));
  EXPECT_EQ(*parse_save_interval("none"), (SaveInterval{.kind = Kind::kNone}));
  EXPECT_EQ(*parse_save_interval("200"), (SaveInterval{.kind = Kind::kSteps, .steps = 200}));
  EXPECT_EQ(*parse_save_interval("30min"), (SaveInterval{.kind = Kind::kTime, .time = {1800}}));
  EXPECT_EQ(*parse_save_interval("1.5 h"), (SaveInterval{.kind = Kind::kTime, .time = {5400}}));
  EXPECT_EQ(parse_save_interval("1000000000000000")->steps, 1000000000000000);
}

TEST(ParseSaveInterval, TextParsesToTheSame) {
  for (const char* text : {"auto", "none", "1", "200", "1000000000000000", "30min", "90s", "1h", "0.1s", "7ms", "3y",
                           "1e-9s", "1e100y", "86399.9s"}) {
    const SaveInterval interval = parse_save_interval(text).or_throw();
    EXPECT_EQ(*parse_save_interval(to_text(interval)), interval) << text << " became " << to_text(interval);
  }
  EXPECT_EQ(to_text({.kind = Kind::kSteps, .steps = 200}), "200");
  EXPECT_EQ(to_text({.kind = Kind::kTime, .time = {1800}}), "30m");
}

TEST(ParseSaveInterval, Refusals) {
  const auto sentence = [](std::string_view text) { return parse_save_interval(text).failure().sentence(); };
  EXPECT_EQ(sentence("0"),
            "checkpoint.interval = \"0\": steps between saves are a whole number from 1; nearest legal: 1, auto, none");
  EXPECT_THAT(sentence("-3"), HasSubstr("a whole number from 1; nearest legal: 1, auto, none"));
  EXPECT_THAT(sentence("0.5"), HasSubstr("a whole number from 1; nearest legal: 1"));
  EXPECT_EQ(sentence("1.5"),
            "checkpoint.interval = \"1.5\": steps between saves are a whole number, and a time has its unit; nearest "
            "legal: 1, 2, 1.5min");
  EXPECT_THAT(sentence("1e3"), HasSubstr("are written in digits; nearest legal: 1000"));
  for (const char* text : {"99999999999999999999", "1000000000000001", "1e300"}) {
    EXPECT_THAT(sentence(text), HasSubstr("are at most 1000000000000000; nearest legal: none")) << text;
  }
  EXPECT_EQ(
      sentence("abc"),
      "checkpoint.interval = \"abc\": must be auto, none, a number of steps or a time; nearest legal: auto, none, "
      "200, 30min");
  for (const char* text : {"Auto", "never", "", " ", "+5", " 200", "-3min", "inf", "nan", "min"}) {
    EXPECT_THAT(sentence(text), HasSubstr("must be auto, none, a number of steps or a time")) << text;
  }
  EXPECT_THAT(sentence("30mins"), HasSubstr("checkpoint.interval = \"30mins\": has the unit \"mins\"; legal units: "));
  EXPECT_THAT(sentence("0s"), HasSubstr("must be more than 0; nearest legal: 1s, auto, none"));
  EXPECT_THAT(sentence("1e400s"), HasSubstr("checkpoint.interval = \"1e400s\": "));
}

// --- steps, time, none ---------------------------------------------------------------------------------------------

TEST(SaveSchedule, NoneNeverSaves) {
  SaveSchedule schedule(every("none"), 0);
  EXPECT_TRUE(drive(schedule, 0, 1000, 1e6).empty());
  EXPECT_EQ(schedule.interval_steps(), 0);
  EXPECT_EQ(schedule.take_news(), "");
}

TEST(SaveSchedule, StepsAreMultiplesFromStepZero) {
  SaveSchedule schedule(every("5"), 0);
  EXPECT_EQ(schedule.interval_steps(), 5);
  EXPECT_FALSE(schedule.due(0));
  EXPECT_EQ(drive(schedule, 0, 17, 1), (std::vector<std::int64_t>{5, 10, 15}));
  EXPECT_EQ(schedule.take_news(), "");
  // Resumed anywhere, also where a save was: the same steps.
  for (std::int64_t start : {1, 5, 7, 10, 13}) {
    SaveSchedule resumed(every("5"), start);
    EXPECT_FALSE(resumed.due(start));
    for (std::int64_t step : drive(resumed, start, 50, 1)) EXPECT_EQ(step % 5, 0);
    SaveSchedule again(every("5"), start);
    EXPECT_EQ(drive(again, start, 50, 1).size(), static_cast<std::size_t>(10 - start / 5));
  }
}

TEST(SaveSchedule, ASaveOutOfTurnLeavesTheMultiples) {
  SaveSchedule schedule(every("5"), 0);
  EXPECT_EQ(drive(schedule, 0, 6, 1), (std::vector<std::int64_t>{5}));
  schedule.saved(6, {0.1});
  EXPECT_EQ(drive(schedule, 6, 11, 1), (std::vector<std::int64_t>{10}));
}

TEST(SaveSchedule, TimeIsTheNearestNumberOfSteps) {
  for (const auto& [step_s, steps] :
       {std::pair{1.0, 60}, std::pair{7.0, 9}, std::pair{8.0, 8}, std::pair{59.0, 1}, std::pair{1000.0, 1}}) {
    SaveSchedule schedule(every("1min"), 100);
    EXPECT_EQ(schedule.interval_steps(), 0);  // a step's time is not known
    EXPECT_FALSE(schedule.due(100));
    EXPECT_FALSE(schedule.due(500));
    EXPECT_EQ(drive(schedule, 100, 100 + 2 * steps, step_s), (std::vector<std::int64_t>{100 + steps, 100 + 2 * steps}));
    EXPECT_EQ(schedule.interval_steps(), steps);
    EXPECT_EQ(schedule.take_news(), "");
  }
}

TEST(SaveSchedule, TimeCountsFromTheLastSave) {
  SaveSchedule schedule(every("10s"), 0);
  EXPECT_TRUE(drive(schedule, 0, 8, 1).empty());
  schedule.saved(8, {0.1});  // out of turn
  EXPECT_EQ(drive(schedule, 8, 30, 1), (std::vector<std::int64_t>{18, 28}));
}

TEST(SaveSchedule, TheMedianOfRecentStepsIsTheStepTime) {
  SaveSchedule schedule(every("100s"), 0);
  schedule.step_done(1, {50});  // the first step warms up
  EXPECT_EQ(schedule.interval_steps(), 2);
  schedule.step_done(2, {2});
  EXPECT_EQ(schedule.interval_steps(), 50);
  schedule.step_done(3, {2});
  EXPECT_EQ(schedule.interval_steps(), 50);
  // Now and then a step takes long, e.g. one with a validation.
  std::int64_t step = 3;
  while (step < 40) schedule.step_done(++step, {step % 4 == 0 ? 500.0 : 2.0});
  EXPECT_EQ(schedule.interval_steps(), 50);
  // Steps become slower for good: known once they are the most of the last 32.
  for (int i = 0; i < 17; ++i) schedule.step_done(++step, {20});
  EXPECT_EQ(schedule.interval_steps(), 5);
}

// --- auto ----------------------------------------------------------------------------------------------------------

// Daly 2006 by hand.
double closed_form(double cost, double mtbf) {
  if (cost >= 2 * mtbf) return mtbf;
  const double x = cost / (2 * mtbf);
  return std::sqrt(2 * cost * mtbf) * (1 + std::sqrt(x) / 3 + x / 9) - cost;
}

TEST(SaveSchedule, AutoIsTheClosedFormWithinAStep) {
  for (double cost : {1e-3, 0.2, 1.2, 9.0, 180.0, 4000.0}) {
    for (double mtbf : {600.0, kHour, 24 * kHour, 50 * kHour, 1e8}) {
      for (double step_s : {0.01, 0.7, 1.0, 13.0, 900.0}) {
        SCOPED_TRACE(fmt::format("cost {} mtbf {} step {}", cost, mtbf, step_s));
        SaveSchedule schedule(automatic(mtbf, cost), 7);
        schedule.step_done(8, {step_s});
        const double steps = static_cast<double>(schedule.interval_steps());
        const double best = closed_form(cost, schedule.mtbf().count) / step_s;
        EXPECT_NEAR(schedule.mtbf().count, mtbf + step_s, 1e-9 * mtbf);
        EXPECT_NEAR(steps, std::max(best, 1.0), 0.5 + 1e-9 * best);
      }
    }
  }
}

TEST(SaveSchedule, AutoSavesAtItsInterval) {
  // sqrt(2 x 2 x 1e8) is 20000 s, less than a step off by Daly's terms.
  SaveSchedule schedule(automatic(1e8, 2), 0);
  const std::vector<std::int64_t> saves = drive(schedule, 0, 650, 100, 2, 50);
  EXPECT_EQ(saves, (std::vector<std::int64_t>{200, 400, 600}));
}

TEST(SaveSchedule, MeasuredStallsReplaceTheExpectedOne) {
  SaveSchedule schedule(automatic(1e8, 1000), 0);
  schedule.step_done(1, {1});
  EXPECT_NEAR(static_cast<double>(schedule.interval_steps()), closed_form(1000, 1e8 + 1), 1);
  schedule.saved(1, {1});
  EXPECT_NEAR(static_cast<double>(schedule.interval_steps()), closed_form(1, 1e8 + 2), 1);
  schedule.step_done(2, {1});
  schedule.saved(2, {3});
  EXPECT_NEAR(static_cast<double>(schedule.interval_steps()), closed_form(2, 1e8 + 6), 1);  // the mean
}

TEST(SaveSchedule, NoShorterThanAWrite) {
  SaveSchedule schedule(automatic(kHour, 0.001, 600), 0);
  schedule.step_done(1, {7});
  EXPECT_EQ(schedule.interval_steps(), 86);  // 600 / 7 is 85.7
  schedule.saved(1, {0.001});
  EXPECT_EQ(schedule.interval_steps(), 86);  // nothing measured yet
  schedule.written({100});
  EXPECT_EQ(schedule.interval_steps(), 15);  // 14.3 rounded up: 14 steps would be shorter than the write
  schedule.written({70});
  EXPECT_EQ(schedule.interval_steps(), 10);
  schedule.written({1});  // the last write counts; Daly's interval is 2.7 s
  EXPECT_EQ(schedule.interval_steps(), 1);
  SaveSchedule uneven(automatic(kHour, 0.001, 9.0), 0);
  uneven.step_done(1, {0.3});  // 9.0 / 0.3 is a little above 30 in doubles
  EXPECT_EQ(uneven.interval_steps(), 30);
}

TEST(SaveSchedule, FailuresShortenItByThePosterior) {
  SavePolicy policy = automatic(24 * kHour, 2);
  policy.elapsed = {48 * kHour};
  double before = std::numeric_limits<double>::infinity();
  for (std::int64_t failures : {0, 1, 2, 5, 20, 1000}) {
    policy.failures = failures;
    SaveSchedule schedule(policy, 0);
    EXPECT_DOUBLE_EQ(schedule.mtbf().count, 72 * kHour / (1 + static_cast<double>(failures)));
    schedule.step_done(1, {0.1});
    const double steps = static_cast<double>(schedule.interval_steps());
    EXPECT_LT(steps, before);
    EXPECT_NEAR(steps, closed_form(2, schedule.mtbf().count) / 0.1, 0.5001);
    before = steps;
  }
}

TEST(SaveSchedule, TimeWithoutFailuresLengthensIt) {
  SaveSchedule schedule(automatic(1000, 1), 0);
  EXPECT_EQ(schedule.mtbf().count, 1000);
  for (std::int64_t step = 1; step <= 300; ++step) schedule.step_done(step, {10});
  EXPECT_DOUBLE_EQ(schedule.mtbf().count, 4000);
  schedule.saved(300, {5});
  EXPECT_DOUBLE_EQ(schedule.mtbf().count, 4005);
}

TEST(SaveSchedule, OddValues) {
  // A clock that saw no stall: the write decides, or every step is saved.
  SaveSchedule free(automatic(24 * kHour, 0), 0);
  begin(free, 1);
  EXPECT_EQ(free.interval_steps(), 1);
  EXPECT_THAT(free.take_news(), HasSubstr("saves every step (1.00 s): a save stalls 0 s"));
  free.saved(4, {0});
  free.written({20});
  EXPECT_EQ(free.interval_steps(), 20);
  // A clock that saw no step.
  SaveSchedule still(automatic(24 * kHour, 1), 0);
  EXPECT_TRUE(drive(still, 0, 100, 0).empty());
  EXPECT_EQ(still.take_news(), "");
  // A save that takes longer than failures let it: every MTBF.
  SaveSchedule hopeless(automatic(100, 1e6), 0);
  hopeless.step_done(1, {1});
  EXPECT_EQ(hopeless.interval_steps(), 101);
  // Huge: never, and no overflow.
  SaveSchedule never(automatic(1e300, 1e300, 1e300), 0);
  begin(never, 1e-9);
  EXPECT_EQ(never.interval_steps(), 1000000000000000);
  EXPECT_FALSE(never.due(4));
  EXPECT_THAT(never.take_news(), HasSubstr("(1000000000000000 steps)"));
  SaveSchedule rare(every("1e100y"), 0);
  rare.step_done(1, {5e-324});
  EXPECT_EQ(rare.interval_steps(), 1000000000000000);
}

// --- news ----------------------------------------------------------------------------------------------------------

TEST(News, SaysTheIntervalAndTheWaste) {
  SavePolicy policy = automatic(24 * kHour, 1.2, 9.1);
  SaveSchedule schedule(policy, 0);
  schedule.step_done(1, {7.5});
  for (std::int64_t step = 2; step <= 3; ++step) {
    schedule.step_done(step, {1.1});
    EXPECT_EQ(schedule.take_news(), "");  // what a step takes is not known
  }
  schedule.step_done(4, {1.1});
  EXPECT_EQ(schedule.take_news(),
            "saves every 7.6 min (413 steps): a save stalls 1.20 s and is written in 9.10 s, a failure is expected "
            "every 24.00 h; expected waste 0.53 %: saving 0.26 %, lost work 0.26 %; Young's interval: 7.6 min");
  EXPECT_EQ(schedule.take_news(), "");
}

TEST(News, FromAStepAndFivePercent) {
  SaveSchedule schedule(automatic(1e8, 1.0), 0);
  begin(schedule, 1000);
  EXPECT_THAT(schedule.take_news(), HasSubstr("(14 steps)"));
  schedule.saved(4, {1.25});            // the interval goes with the root: 12 % more
  EXPECT_EQ(schedule.take_news(), "");  // soon after the last, and the save may still fail
  schedule.written({1});
  EXPECT_THAT(schedule.take_news(), HasSubstr("(16 steps)"));
  EXPECT_EQ(schedule.take_news(), "");
  schedule.step_done(5, {1000});
  schedule.saved(5, {1.35});  // a mean of 1.3: 2 % more
  EXPECT_EQ(schedule.take_news(), "");
  schedule.step_done(6, {1000});
  schedule.saved(6, {0.0});  // shorter counts too
  EXPECT_THAT(schedule.take_news(), HasSubstr("(13 steps)"));
}

// 24 h of steps of 0.7 to 1.3 s, with a save at each interval whose write takes 2 to 6 s.
TEST(News, NoisyTimesAreNoNews) {
  SaveSchedule schedule(automatic(1e8, 2.0, 4.0), 0);
  std::int64_t lines = 0, saves = 0;
  for (std::int64_t step = 1; step <= 86400; ++step) {
    schedule.step_done(step, {0.7 + 0.6 * static_cast<double>(step * 7919 % 1000) / 999});
    lines += schedule.take_news().empty() ? 0 : 1;
    if (!schedule.due(step)) continue;
    schedule.saved(step, {2.0});
    schedule.written({static_cast<double>(2 + step % 5)});
    lines += schedule.take_news().empty() ? 0 : 1;
    ++saves;
  }
  EXPECT_EQ(lines, 1);
  EXPECT_GT(saves, 3);
}

// What decides is the write, which is never twice the same.
TEST(News, NoisyWritesAreNewsNowAndThen) {
  SaveSchedule schedule(automatic(kHour, 1e-6, 20), 0);
  std::vector<std::int64_t> told;
  for (std::int64_t step = 1; step <= 3600; ++step) {
    schedule.step_done(step, {1.0});
    if (!schedule.take_news().empty()) told.push_back(step);
    if (!schedule.due(step)) continue;
    schedule.saved(step, {1e-6});
    schedule.written({step % 7 < 4 ? 10.0 : 25.0});
    if (!schedule.take_news().empty()) told.push_back(step);
  }
  ASSERT_GE(told.size(), 3U);
  EXPECT_LE(told.size(), 2U + 3600 / 600);
  EXPECT_EQ(told[0], 4);
  for (std::size_t i = 2; i < told.size(); ++i) EXPECT_GE(told[i] - told[i - 1], 600);
}

// The MTBF that is expected grows as nothing fails: 10 % of it is 5 % of the interval.
TEST(News, AnotherMtbfOrCostIsNews) {
  SaveSchedule schedule(automatic(100 * kHour, 20.0), 0);
  std::vector<std::int64_t> told;
  std::int64_t step = 0;
  for (; step < 30 * 60;) {  // 30 hours of minutes
    schedule.step_done(++step, {step % 2 == 0 ? 48.0 : 72.0});
    if (!schedule.take_news().empty()) told.push_back(step / 60);
  }
  EXPECT_EQ(told, (std::vector<std::int64_t>{0, 10, 21}));
  schedule.saved(step, {100.0});  // saves stall for five times as long
  schedule.written({100.0});
  EXPECT_THAT(schedule.take_news(), HasSubstr("a save stalls 100.00 s"));
}

TEST(News, NotForLessThanAStep) {
  SaveSchedule schedule(automatic(kHour, 1.0), 0);
  begin(schedule, 1000);
  EXPECT_THAT(schedule.take_news(), HasSubstr("saves every step (16.7 min)"));
  schedule.saved(4, {100});  // far more than 5 %, and still one step
  schedule.written({1});
  EXPECT_EQ(schedule.interval_steps(), 1);
  EXPECT_EQ(schedule.take_news(), "");
}

// An interval of 141 s or 141 steps.
TEST(News, NoSaveIsAnnouncedThatDoesNotCome) {
  for (const auto& [last, announced] :
       std::vector<std::pair<std::int64_t, bool>>{{120, false}, {150, false}, {300, true}}) {
    SavePolicy policy = automatic(1e4, 1.0);
    policy.last_step = last;
    SaveSchedule schedule(policy, 0);
    schedule.step_done(1, {30});  // slow: by this step a save would be due every fifth
    std::string news;
    std::int64_t saves = 0;
    for (std::int64_t step = 2; step < last; ++step) {
      schedule.step_done(step, {1});
      news += schedule.take_news();
      if (!schedule.due(step)) continue;
      schedule.saved(step, {1});
      ++saves;
    }
    if (announced) {
      EXPECT_THAT(news, HasSubstr("saves every 2.4 min (141 steps)"));
      EXPECT_EQ(saves, 2);
    } else if (last == 120) {
      EXPECT_EQ(
          news,
          "saves at its end, in about 116.00 s: in a longer run it would every 2.4 min (a save stalls 1.00 s and is "
          "written in 0 s, a failure is expected every 167.2 min)");
      EXPECT_EQ(saves, 0);
    } else {  // close to the end: the one that comes is told when it does
      EXPECT_THAT(news, testing::AllOf(testing::StartsWith("saves at its end"), HasSubstr("saves every 2.4 min")));
      EXPECT_EQ(saves, 1);
    }
  }
}

// --- checks --------------------------------------------------------------------------------------------------------

TEST(SaveSchedule, ChecksItsInput) {
  EXPECT_THROW(SaveSchedule(automatic(0, 1), 0), InternalError);
  EXPECT_THROW(SaveSchedule(automatic(1, -1), 0), InternalError);
  EXPECT_THROW(SaveSchedule(automatic(1, 1, NAN), 0), InternalError);
  EXPECT_THROW(SaveSchedule(automatic(1, 1), -1), InternalError);
  EXPECT_THROW(SaveSchedule({.interval = {.kind = Kind::kSteps}}, 0), InternalError);
  EXPECT_THROW(SaveSchedule({.interval = {.kind = Kind::kTime}}, 0), InternalError);
  SaveSchedule schedule(every("5"), 10);
  EXPECT_THROW(schedule.step_done(10, {1}), InternalError);
  EXPECT_THROW(schedule.step_done(11, {-1}), InternalError);
  EXPECT_THROW(schedule.saved(9, {1}), InternalError);
  EXPECT_THROW(schedule.saved(10, {INFINITY}), InternalError);
  EXPECT_THROW(schedule.written({-1}), InternalError);
}

}  // namespace
}  // namespace trireme::train
