#pragma once

#include <algorithm>

#include "base/units.h"

namespace trireme {

// How long somebody has waited who looks at this again and again: what lies between two looks counts kMost_s at the
// most. A process that was stopped as a whole, or whose machine was, has not waited meanwhile, and neither have those
// that it waits for worked.
class WaitClock {
 public:
  static constexpr double kMost_s = 1.0;

  explicit WaitClock(Seconds now) : looked_(now) {}
  void restart(Seconds now) { *this = WaitClock(now); }
  Seconds look(Seconds now) {
    const double gap = std::max(now.count - looked_.count, 0.0);
    looked_ = now;
    if (gap > kMost_s) missed_.count += gap - kMost_s;
    waited_.count += std::min(gap, kMost_s);
    return waited_;
  }
  Seconds missed() const { return missed_; }  // what did not count

 private:
  Seconds looked_;
  Seconds waited_;
  Seconds missed_;
};

}  // namespace trireme
