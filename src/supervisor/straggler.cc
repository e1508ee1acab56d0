#include "supervisor/straggler.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"

namespace trireme::supervisor {
namespace {

// The middle one; of an even number the lower of the two, so that of two ranks the faster is the measure.
double lower_median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

StragglerDetector::StragglerDetector(StragglerPolicy policy, std::vector<int> stage_of, int warm_up)
    : policy_(policy), warm_up_(warm_up), ranks_(stage_of.size()) {
  TRIREME_CHECK(policy.margin > 1, "margin {}", policy.margin);
  TRIREME_CHECK_GE(policy.patience, 1);
  TRIREME_CHECK(policy.span.count >= 0, "a span of {} s", policy.span.count);
  TRIREME_CHECK_GE(warm_up, 0);
  std::map<int, std::vector<int>> ranks_of;
  for (std::size_t rank = 0; rank < stage_of.size(); ++rank) ranks_of[stage_of[rank]].push_back(static_cast<int>(rank));
  for (auto& [stage, members] : ranks_of) {
    for (const int rank : members)
      ranks_[static_cast<std::size_t>(rank)].stage_index = static_cast<int>(stages_.size());
    stages_.push_back(std::move(members));
  }
}

std::vector<Straggler> StragglerDetector::add_step(std::int64_t step, const std::vector<double>& compute_s,
                                                   Seconds took) {
  TRIREME_CHECK_EQ(compute_s.size(), ranks_.size());
  for (const double time : compute_s) TRIREME_CHECK(time > 0 && std::isfinite(time), "a step of {} s", time);
  if (warm_up_ > 0) {
    --warm_up_;
    return {};
  }
  if (open_.compute_s.empty()) open_ = {.first_step = step, .compute_s = std::vector<double>(ranks_.size())};
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) open_.compute_s[rank] += compute_s[rank];
  open_.took_s += took.count;
  if (open_.took_s < policy_.span.count) return {};
  const Span span = std::exchange(open_, {});
  compare_in_stages(span);
  compare_with_own_spans(span);
  std::vector<Straggler> found;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (std::optional<Straggler> straggler = judge(static_cast<int>(rank))) found.push_back(*std::move(straggler));
  }
  return found;
}

bool StragglerDetector::is_slow(int rank) const { return ranks_.at(static_cast<std::size_t>(rank)).slow; }

void StragglerDetector::compare_in_stages(const Span& span) {
  for (const std::vector<int>& members : stages_) {
    if (members.size() == 1) continue;
    std::vector<double> times;
    for (const int rank : members) times.push_back(span.compute_s[static_cast<std::size_t>(rank)]);
    const double middle = lower_median(times);
    for (std::size_t i = 0; i < members.size(); ++i) {
      remember(ranks_[static_cast<std::size_t>(members[i])], {.step = span.first_step, .ratio = times[i] / middle});
    }
  }
}

// What slows all ranks divides out twice: a rank's time is taken as a part of the run's middle time, and its change
// since the first spans as a part of the change in the middle of all those alone in their stages.
void StragglerDetector::compare_with_own_spans(const Span& span) {
  std::vector<int> alone;
  for (const std::vector<int>& members : stages_) {
    if (members.size() == 1) alone.push_back(members.front());
  }
  if (alone.size() < 2) return;  // nobody to tell its slowness from everybody's
  std::vector<double> times;
  for (const int rank : alone) times.push_back(span.compute_s[static_cast<std::size_t>(rank)]);
  const double middle = lower_median(times);
  std::vector<double> changes;
  for (std::size_t i = 0; i < alone.size(); ++i) {
    Rank& rank = ranks_[static_cast<std::size_t>(alone[i])];
    if (rank.own_ratio > 0) {
      changes.push_back(times[i] / middle / rank.own_ratio);
      continue;
    }
    rank.own_spans.push_back(times[i] / middle);
    if (std::ssize(rank.own_spans) == kOwnSpans) rank.own_ratio = lower_median(std::exchange(rank.own_spans, {}));
  }
  if (changes.empty()) return;
  const double common = lower_median(changes);
  for (std::size_t i = 0; i < alone.size(); ++i) {
    remember(ranks_[static_cast<std::size_t>(alone[i])], {.step = span.first_step, .ratio = changes[i] / common});
  }
}

void StragglerDetector::remember(Rank& rank, Ratio ratio) const {
  rank.window.push_back(ratio);
  if (std::ssize(rank.window) > 2 * policy_.patience - 1) rank.window.erase(rank.window.begin());
}

std::optional<Straggler> StragglerDetector::judge(int index) {
  Rank& rank = ranks_[static_cast<std::size_t>(index)];
  const double recovered = std::sqrt(policy_.margin);
  const auto tells = [&](const Ratio& span) {
    return rank.slow ? span.ratio < recovered : span.ratio >= policy_.margin;
  };
  if (std::ranges::count_if(rank.window, tells) < policy_.patience) return std::nullopt;
  const auto first = std::ranges::find_if(rank.window, tells);
  const std::vector<Ratio> telling(first, rank.window.end());
  rank.window.clear();  // what has told once tells nothing about what comes
  rank.slow = !rank.slow;
  if (!rank.slow) return std::nullopt;
  std::vector<double> ratios;
  for (const Ratio& span : telling) ratios.push_back(span.ratio);
  const auto others = stages_[static_cast<std::size_t>(rank.stage_index)].size() - 1;
  return Straggler{.rank = index,
                   .factor = lower_median(ratios),
                   .since_step = telling.front().step,
                   .compared_with = others == 0
                                        ? "its own first steps"
                                        : fmt::format("{} rank{} of its stage", others, others == 1 ? "" : "s")};
}

}  // namespace trireme::supervisor
