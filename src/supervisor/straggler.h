#pragma once

// Who is slow: each rank's own compute time of a step (waiting excluded, so that those who wait for a slow one are not
// blamed), against the ranks that do the same work. Pure.
//
// docs/algorithms/stragglers.md: the statistic, the margin and its false alarm rate.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"

namespace trireme::supervisor {

struct StragglerPolicy {
  double margin = 1.2;  // slower than its like by this factor, at least
  int patience = 10;    // spans that it must be so, of the last 2 patience - 1: the median of those
  Seconds span{0.5};    // a step; of shorter ones so many, one after the other, that they take as long together
};

struct Straggler {
  int rank = 0;
  double factor = 1;            // of what its like take
  std::int64_t since_step = 0;  // first of the steps that tell
  std::string compared_with;    // "3 ranks of its stage", "its own first steps"
};

class StragglerDetector {
 public:
  // Spans after the warm-up that tell how fast a rank is that is alone in its stage.
  static constexpr int kOwnSpans = 32;

  // stage_of: by rank; ranks of one stage do the same work. The first `warm_up` steps after a start are not looked at.
  StragglerDetector(StragglerPolicy policy, std::vector<int> stage_of, int warm_up = 2);

  // One step of all ranks (by rank, positive), steps ascending, and how long it took. Who is slow from now on; each
  // once until it has been as fast as its like for as long.
  std::vector<Straggler> add_step(std::int64_t step, const std::vector<double>& compute_s, Seconds took);
  // Slow as of now.
  bool is_slow(int rank) const;

 private:
  struct Span {
    std::int64_t first_step = 0;
    std::vector<double> compute_s;  // by rank; empty: no step yet
    double took_s = 0;
  };
  struct Ratio {
    std::int64_t step = 0;  // first of the span
    double ratio = 1;       // of its like's time
  };
  struct Rank {
    int stage_index = 0;            // into stages_
    std::vector<double> own_spans;  // of a rank alone in its stage, until there are kOwnSpans
    double own_ratio = 0;           // of the run's middle time, their median; 0: not known yet
    std::vector<Ratio> window;      // the last ones, oldest first
    bool slow = false;
  };

  void compare_in_stages(const Span& span);
  void compare_with_own_spans(const Span& span);
  void remember(Rank& rank, Ratio ratio) const;
  std::optional<Straggler> judge(int index);

  StragglerPolicy policy_;
  int warm_up_;  // steps of it that are left
  std::vector<Rank> ranks_;
  std::vector<std::vector<int>> stages_;  // ranks of each
  Span open_;
};

}  // namespace trireme::supervisor
