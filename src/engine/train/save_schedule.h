#pragma once

// When a run saves: every so many steps or seconds, or as the arithmetic says (plan/checkpoint_interval.h). Pure: it is
// told times, and looks at no clock.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/units.h"
#include "plan/checkpoint_interval.h"

namespace trireme::train {

// checkpoint.interval: "auto", "none" (no checkpoints at all), steps ("200") or time ("30min").
struct SaveInterval {
  enum class Kind { kNone, kAuto, kSteps, kTime };
  Kind kind = Kind::kAuto;
  std::int64_t steps = 0;
  Seconds time{};
  friend bool operator==(const SaveInterval&, const SaveInterval&) = default;
};
// Refused (option "checkpoint.interval"): anything else, with examples.
Result<SaveInterval> parse_save_interval(std::string_view text);
std::string to_text(const SaveInterval& interval);  // parses to the same

struct SavePolicy {
  SaveInterval interval{};
  Seconds mtbf{};             // of the whole job, expected; kAuto needs it positive
  std::int64_t failures = 0;  // that this run has seen before now
  Seconds elapsed{};          // that this run has trained before now
  Seconds expected_stall{};   // of a save, until one was measured
  Seconds expected_write{};
  std::int64_t last_step = 0;  // of the run, which is saved in any case; 0: not known
};

// kSteps saves at the multiples of its number, counted from step 0 of the run, so that a resumed run saves at the same
// steps. kAuto and kTime count from the last save, or from the start.
class SaveSchedule {
 public:
  // first_step: steps done before this start; the count to the next save begins there.
  SaveSchedule(const SavePolicy& policy, std::int64_t first_step);

  // After each step, `step` ascending: how long it took, a save not counted.
  void step_done(std::int64_t step, Seconds duration);
  // Whether a save is due now, `step` steps being done.
  bool due(std::int64_t step) const;
  // A save of `step` began and blocked the run for `stall`: counts anew from there.
  void saved(std::int64_t step, Seconds stall);
  // It is durable, `write` after it began.
  void written(Seconds write);

  // Steps between saves as of now; 0: never, or not yet known: kAuto and kTime need the time of a step, which is the
  // median of the last 32, without the first of this start where there is another: it is slower than the others. kTime:
  // the nearest number of steps, at least 1. kAuto: so with plan::daly_interval of the mean stall and of mtbf(), and no
  // shorter than the last write took, since one save is written at a time.
  std::int64_t interval_steps() const;
  // Failures update the expected MTBF: (mtbf + elapsed) / (1 + failures), one over the mean rate of a Gamma posterior
  // whose prior has seen one failure in `mtbf`; elapsed goes on as this start trains.
  Seconds mtbf() const;
  // What a person should know of kAuto's interval; empty: nothing new. The first time once kKnown steps beside the
  // first were timed: the interval in seconds and in steps, and the waste that is expected; or, where the run is over
  // before a save is due, that it saves at its end. Again after a change by a step and, in seconds, by at least 5 % of
  // what was told (step times, which are noisy, have no part in them): as soon as a save was measured, then at most
  // each kNewsEvery of training, since writes are noisy too. And where a save is due after all.
  std::string take_news();

 private:
  static constexpr Seconds kNewsEvery{600};
  static constexpr std::size_t kKnown = 3;

  Seconds step_time() const;  // 0: not known
  Seconds stall() const;
  plan::FailureModel failure_model() const;
  Seconds auto_interval() const;  // of kAuto, before it is rounded to steps
  std::int64_t auto_steps(Seconds step) const;
  bool ends_before_a_save() const;
  std::string news_text(bool at_end) const;

  SavePolicy policy_;  // elapsed and expected_write as of now
  std::int64_t last_save_;
  std::int64_t last_step_;
  std::optional<double> first_step_s_;
  std::vector<double> recent_steps_;  // seconds, from the second on; a ring once it is full
  std::size_t next_recent_ = 0;
  double stalled_ = 0;  // seconds, by `saves_` saves
  std::int64_t saves_ = 0;
  bool measured_ = false;  // expected_write is of a save
  // The last news.
  struct Told {
    std::int64_t steps = 0;  // 0: none yet
    Seconds interval;
    Seconds elapsed;  // when
    bool measured = false;
    bool at_end = false;
  };
  Told told_;
};

}  // namespace trireme::train
