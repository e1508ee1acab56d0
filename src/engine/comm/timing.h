#pragma once

// How long a rank's communication takes, and how much of it the rank waits for: a decorator of any communicator.
//
// An operation is under way from its posting to Request::completed_at(), which may lie before the rank looks. Exposed
// is the time that the rank's thread spends inside posting calls, waits and barriers. With overlap off (each operation
// is waited for at once) exposed equals under way, but for the calls' own overhead. The exposed share is exposed /
// under way; overlap hides the rest.

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/units.h"
#include "engine/comm/communicator.h"
#include "telemetry/timeline.h"

namespace trireme::comm {

struct AxisTimes {
  Seconds under_way;            // at least one operation of the axis was
  Seconds exposed;              // blocked inside calls on the axis
  std::int64_t operations = 0;  // ended, barriers included
};

// The times of one rank, over all of its communicators, for the step at hand. That rank's thread only. Memory: the
// operations that run at once, and kMaxIntervals an axis.
class CommunicationTimes {
 public:
  // Stretches apart from one another that are remembered while an operation from before them has not ended. Beyond,
  // the first two are taken for one: the time between them counts as under way.
  static constexpr std::size_t kMaxIntervals = 1024;

  // By axis, of all axes seen so far; starts anew. An operation that has not ended, or not been looked at, counts whole
  // in the next.
  std::map<std::string, AxisTimes> take();
  // Blocked inside calls since then, on all axes.
  Seconds exposed() const;

  // What the rank's thread has computed while it was blocked, since the last time that it was asked: polling.
  Seconds take_busy_waiting();

  // --- For communicators.
  void begin(const std::string& axis, Clock::time_point posted);
  void end(const std::string& axis, Clock::time_point posted, Clock::time_point completed);
  void forget(const std::string& axis, Clock::time_point posted);  // it failed
  void add_exposed(const std::string& axis, Clock::duration time);
  void add_busy_waiting(Seconds time);

 private:
  struct Interval {
    Clock::time_point begin;
    Clock::time_point end;
  };
  struct Axis {
    Clock::duration under_way{};  // of what lies before every running operation
    Clock::duration exposed{};
    std::int64_t operations = 0;
    std::vector<Interval> intervals;           // ascending, apart
    std::multiset<Clock::time_point> running;  // when posted

    void add(Interval interval);
    void settle(Clock::time_point before);
  };
  std::map<std::string, Axis> axes_;
  Seconds busy_waiting_;
};

// `times` and `timeline` outlive the communicator and its requests. A timeline that is there and switched on gets a
// span of each operation under way, on the axis' track, and of each time that the rank's thread is blocked in a call
// ("wait: all-reduce").
std::unique_ptr<Communicator> make_timing_communicator(std::unique_ptr<Communicator> inner, CommunicationTimes& times,
                                                       telemetry::Timeline* timeline = nullptr);

}  // namespace trireme::comm
