#include "planner/search.h"

#include <algorithm>
#include <limits>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "base/check.h"
#include "base/divisors.h"
#include "planner/bounded_best.h"

namespace trireme::planner {
namespace {

using model::Recompute;
using plan::AxisOrder;
using plan::ReduceWhen;
using plan::ScheduleKind;

constexpr std::size_t kKept = 4096;  // candidates kept for the simulation
constexpr std::size_t kNearMisses = 5;
constexpr std::int64_t kMostToShow = 200;  // simulated beyond the proof of the first, for the list
// Chunks a stage that are searched, and chunks in all: beyond lie no models, and the search would not end in seconds.
constexpr int kMostInterleave = 64;
constexpr int kMostChunks = 1024;

template <class T>
bool open(const std::optional<T>& wanted, T value) {
  return !wanted || *wanted == value;
}

struct Candidate {
  Choice choice;
  Screened screened;
};

// Non-dominated (time, memory), ascending in time, so descending in memory.
class Front {
 public:
  void offer(const Choice& choice, const Screened& s) {
    const auto after =
        std::ranges::upper_bound(points_, s.time, {}, [](const Candidate& c) { return c.screened.time; });
    if (after != points_.begin() && std::prev(after)->screened.memory <= s.memory) return;
    auto first = after, end = after;
    if (first != points_.begin() && std::prev(first)->screened.time == s.time) --first;
    while (end != points_.end() && end->screened.memory >= s.memory) ++end;
    const auto at = points_.erase(first, end);
    points_.insert(at, {choice, s});
  }
  const std::vector<Candidate>& points() const { return points_; }

 private:
  std::vector<Candidate> points_;
};

class Search {
 public:
  Search(Evaluator& evaluator, const SearchOptions& options)
      : evaluator_(evaluator),
        problem_(evaluator.problem()),
        options_(options),
        wanted_(options.wanted),
        memory_(static_cast<double>(
            (options.device_memory.count > 0 ? options.device_memory : problem_.cluster.device.memory).count)),
        kept_(options.exhaustive ? std::numeric_limits<std::size_t>::max() : kKept),
        misses_(64 * kNearMisses) {}

  void screen_world(int world) {
    for (int tp : legal_tensor_degrees(problem_, world, wanted_.allow_slow_tp)) {
      if (!open(wanted_.tp, tp)) continue;
      for (int pp : legal_pipeline_degrees(problem_, world, tp)) {
        if (open(wanted_.pp, pp) && open(wanted_.dp, world / tp / pp)) degrees(tp, pp, world / tp / pp);
      }
    }
  }

  bool any_fits() const { return fitting_ > 0; }
  NearMiss fastest() const { return miss(front_.points().front()); }

  void finish(SearchResult& result, Env& clock) {
    const Seconds start = clock.now();
    const std::vector<Candidate> candidates = kept_.take();
    const auto ranked = simulate_best(candidates, result);
    std::set<Kind> shown;
    for (const auto& [value, candidate] : ranked) {
      if (result.best.size() == static_cast<std::size_t>(options_.show)) break;
      if (shown.insert(kind_of(candidate->choice)).second)
        result.best.push_back(evaluator_.estimate(candidate->choice));
    }
    pareto(result);
    near_misses(result);
    result.screened = screened_;
    result.fitting = fitting_;
    result.simulating_s = clock.now().count - start.count;
  }

 private:
  // What a list shows one layout of: those that differ only in schedule, ZeRO or recompute are one step apart.
  using Kind = std::tuple<int, int, int, std::int64_t>;
  static Kind kind_of(const Choice& c) { return {c.tp, c.pp, c.dp, c.micro_batch}; }

  // In the order of their bounds, until no other can be better than the best and enough kinds are there to show.
  std::vector<std::pair<double, const Candidate*>> simulate_best(const std::vector<Candidate>& candidates,
                                                                 SearchResult& result) {
    std::vector<std::pair<double, const Candidate*>> ranked;
    std::set<Kind> kinds;
    double best = std::numeric_limits<double>::infinity();
    double least_left = best;
    for (const Candidate& c : candidates) {
      const double bound = key(c.choice, c.screened);
      const bool enough = kinds.size() >= static_cast<std::size_t>(options_.show) || result.simulated >= kMostToShow;
      if (!options_.exhaustive && bound >= best && enough) {
        least_left = bound;
        break;
      }
      const double value = options_.objective == Objective::kHeadroom
                               ? bound
                               : key(c.choice, {evaluator_.simulate(c.choice), c.screened.memory});
      best = std::min(best, value);
      ranked.emplace_back(value, &c);
      kinds.insert(kind_of(c.choice));
      ++result.simulated;
    }
    if (ranked.size() == candidates.size() && kept_.dropped()) {
      least_left = key(candidates.back().choice, candidates.back().screened);
    }
    result.winner_proved = least_left >= best;
    std::ranges::stable_sort(ranked, {}, &std::pair<double, const Candidate*>::first);
    return ranked;
  }

  // The front of the closed forms, and of it what is left once the schedules are simulated.
  void pareto(SearchResult& result) {
    std::vector<Estimate> all = result.best;  // of equal bounds the front kept one, perhaps not the best
    for (const Candidate& c : front_.points()) all.push_back(evaluator_.estimate(c.choice));
    std::ranges::stable_sort(all, {}, [](const Estimate& e) { return std::pair(e.step_s, e.worst().total()); });
    for (Estimate& e : all) {
      if (result.pareto.empty() || e.worst().total() < result.pareto.back().worst().total()) {
        result.pareto.push_back(std::move(e));
      }
    }
  }

  void near_misses(SearchResult& result) {
    const double fastest =
        result.best.empty() ? std::numeric_limits<double>::infinity() : front_.points().front().screened.time;
    std::set<Kind> shown;
    for (const Candidate& c : misses_.take()) {
      if (result.near_misses.size() == kNearMisses || c.screened.time >= fastest) break;
      if (shown.insert(kind_of(c.choice)).second) result.near_misses.push_back(miss(c));
    }
    if (result.best.empty() && smallest_.screened.memory > 0) result.smallest = miss(smallest_);
  }
  NearMiss miss(const Candidate& c) const { return {c.choice, c.screened.time, c.screened.memory - memory_}; }

  double key(const Choice& choice, const Screened& s) const {
    switch (options_.objective) {
      case Objective::kTime:
        return s.time;
      case Objective::kCost:
        return s.time * choice.world();
      case Objective::kHeadroom:
        return s.memory;
    }
    TRIREME_CHECK(false, "objective {}", static_cast<int>(options_.objective));
  }

  void degrees(int tp, int pp, int dp) {
    if (problem_.global_batch % dp != 0) return;
    const std::int64_t sequences = problem_.global_batch / dp;
    Choice choice{.tp = tp, .pp = pp, .dp = dp};
    for (std::int64_t micro_batch : divisors(sequences)) {
      if (!open(wanted_.micro_batch, micro_batch) || sequences / micro_batch > (1 << 20)) continue;
      choice.micro_batch = micro_batch;
      for (bool sequence_parallel : {false, true}) {
        if (sequence_parallel && (tp == 1 || problem_.sequence % tp != 0)) continue;
        if (!open(wanted_.sequence_parallel, sequence_parallel)) continue;
        choice.sequence_parallel = sequence_parallel;
        for (Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
          if (!open(wanted_.recompute, recompute)) continue;
          choice.recompute = recompute;
          schedules(choice, evaluator_.layer_costs(tp, sequence_parallel, micro_batch, recompute),
                    sequences / micro_batch);
        }
      }
    }
  }

  void schedules(Choice choice, const LayerCosts& layers, std::int64_t micro_batches) {
    const auto try_one = [&](ScheduleKind schedule, int interleave) {
      if (!open(wanted_.schedule, schedule) || !open(wanted_.interleave, interleave)) return;
      choice.schedule = schedule;
      choice.interleave = interleave;
      variants(choice, layers, evaluator_.stage_plan(choice.pp, interleave));
    };
    if (choice.pp == 1) {
      // Every schedule is the same order of work on one stage.
      return try_one(wanted_.schedule.value_or(ScheduleKind::kOneFOneB), 1);
    }
    for (ScheduleKind schedule : {ScheduleKind::kGpipe, ScheduleKind::kOneFOneB, ScheduleKind::kZeroBubbleH1}) {
      try_one(schedule, 1);
    }
    if (micro_batches % choice.pp != 0) return;
    const auto legal = static_cast<int>(problem_.config.layers) / choice.pp;
    const int most = std::min({legal, kMostInterleave, kMostChunks / choice.pp});
    for (int interleave = 2; interleave <= most; ++interleave) try_one(ScheduleKind::kInterleaved, interleave);
    if (const int asked = wanted_.interleave.value_or(0); asked > std::max(1, most) && asked <= legal) {
      try_one(ScheduleKind::kInterleaved, asked);
    }
  }

  // Axis order, ZeRO stage, reduction and prefetch: what is cheap to vary once the pipeline is known.
  void variants(Choice choice, const LayerCosts& layers, const StagePlan& plan) {
    for (AxisOrder order : {AxisOrder::kTpPpDp, AxisOrder::kTpDpPp}) {
      if (!open(wanted_.order, order)) continue;
      if (!wanted_.order && order != AxisOrder::kTpPpDp && (choice.pp == 1 || choice.dp == 1)) continue;
      choice.order = order;
      const AxisLines lines = evaluator_.axis_lines(choice);
      bool pipeline_known = false;
      for (int zero = 0; zero <= (choice.dp > 1 ? 3 : 0); ++zero) {
        if (!open(wanted_.zero, zero)) continue;
        choice.zero = zero;
        for (ReduceWhen reduce : {ReduceWhen::kStep, ReduceWhen::kMicrobatch}) {
          if (reduce != plan::default_reduce(zero) && (!wanted_.wide || choice.dp == 1)) continue;
          choice.reduce = reduce;
          if (exchanges_each_micro_batch(choice)) {
            evaluator_.pipeline_costs(choice, layers, plan, lines, exchanging_);
          } else if (!pipeline_known) {
            evaluator_.pipeline_costs(choice, layers, plan, lines, quiet_);
            pipeline_known = true;
          }
          const PipelineCosts& costs = exchanges_each_micro_batch(choice) ? exchanging_ : quiet_;
          for (int prefetch = 1; prefetch <= (zero == 3 && wanted_.wide ? 3 : 1); ++prefetch) {
            choice.prefetch = prefetch;
            one(choice, layers, plan, lines, costs);
          }
        }
      }
    }
  }

  void one(const Choice& choice, const LayerCosts& layers, const StagePlan& plan, const AxisLines& lines,
           const PipelineCosts& costs) {
    ++screened_;
    const Candidate c{choice,
                      {.time = evaluator_.step_time(choice, layers, plan, lines, costs),
                       .memory = evaluator_.worst_memory(choice, layers, plan)}};
    if (c.screened.memory > memory_) {
      misses_.offer(c.screened.time, c);
      if (smallest_.screened.memory == 0 || c.screened.memory < smallest_.screened.memory) smallest_ = c;
      return;
    }
    ++fitting_;
    front_.offer(c.choice, c.screened);
    kept_.offer(key(choice, c.screened), c);
  }

  Evaluator& evaluator_;
  const Problem& problem_;
  const SearchOptions& options_;
  const Wanted& wanted_;
  double memory_;
  std::int64_t screened_ = 0;
  std::int64_t fitting_ = 0;
  PipelineCosts quiet_, exchanging_;
  BoundedBest<Candidate> kept_;
  BoundedBest<Candidate> misses_;
  Candidate smallest_{};
  Front front_;
};

std::vector<int> worlds_of(const Problem& problem, Objective objective) {
  const auto devices = static_cast<int>(problem.cluster.devices());
  std::vector<int> worlds{devices};
  // Fewer devices may cost less: halves, down to one host.
  while (objective == Objective::kCost && worlds.back() % 2 == 0 &&
         worlds.back() / 2 >= problem.cluster.devices_per_host) {
    worlds.push_back(worlds.back() / 2);
  }
  return worlds;
}

}  // namespace

Choice choice_of(const Wanted& wanted, int world) {
  Choice choice{.tp = wanted.tp.value_or(1), .pp = wanted.pp.value_or(1)};
  const std::int64_t replica = std::int64_t{choice.tp} * choice.pp;
  choice.dp = wanted.dp.value_or(static_cast<int>(std::max<std::int64_t>(1, world / replica)));
  choice.interleave = wanted.interleave.value_or(1);
  choice.micro_batch = wanted.micro_batch.value_or(1);
  choice.schedule = wanted.schedule.value_or(choice.interleave > 1 ? plan::ScheduleKind::kInterleaved
                                                                   : plan::ScheduleKind::kOneFOneB);
  choice.zero = wanted.zero.value_or(0);
  choice.recompute = wanted.recompute.value_or(model::Recompute::kNone);
  choice.order = wanted.order.value_or(plan::AxisOrder::kTpPpDp);
  choice.sequence_parallel = wanted.sequence_parallel.value_or(false);
  choice.reduce = plan::default_reduce(choice.zero);
  return choice;
}

Result<Objective> parse_objective(std::string_view text) {
  for (Objective objective : {Objective::kTime, Objective::kCost, Objective::kHeadroom}) {
    if (objective_name(objective) == text) return objective;
  }
  return Failure{
      .option = "rank-by", .value = std::string(text), .rule = "is not known", .nearest = "time, cost, headroom"};
}
std::string_view objective_name(Objective objective) {
  return objective == Objective::kTime ? "time" : objective == Objective::kCost ? "cost" : "headroom";
}

std::vector<int> legal_tensor_degrees(const Problem& problem, int world, bool allow_slow_tp) {
  std::vector<int> legal;
  const std::int64_t most = allow_slow_tp ? world : std::min<std::int64_t>(world, problem.cluster.devices_per_host);
  for (std::int64_t tp : divisors<std::int64_t>(world)) {
    plan::Layout layout;
    layout.tp = static_cast<int>(tp);
    if (tp <= most && plan::check_layout(problem.config, layout, {.sequence = 1}).ok()) {
      legal.push_back(static_cast<int>(tp));
    }
  }
  return legal;
}

std::vector<int> legal_pipeline_degrees(const Problem& problem, int world, int tp) {
  std::vector<int> legal;
  if (world % tp != 0) return legal;
  for (std::int64_t pp : divisors<std::int64_t>(world / tp)) {
    if (pp <= problem.config.layers) legal.push_back(static_cast<int>(pp));
  }
  return legal;
}

SearchResult search(Evaluator& evaluator, const SearchOptions& options, Env& clock) {
  SearchResult result;
  const Seconds start = clock.now();
  Search search(evaluator, options);
  for (int world : worlds_of(evaluator.problem(), options.objective)) search.screen_world(world);
  result.screening_s = clock.now().count - start.count;
  search.finish(result, clock);
  return result;
}

std::int64_t smallest_fitting_world(const Problem& problem, const SearchOptions& options, std::int64_t most,
                                    std::optional<NearMiss>& best) {
  const std::int64_t host = problem.cluster.devices_per_host;
  std::vector<std::int64_t> worlds;
  for (std::int64_t world = 1; world < host; world *= 2) worlds.push_back(world);
  // Whole hosts, in steps of at most a quarter.
  for (std::int64_t hosts = 1; hosts * host <= most; hosts += std::max<std::int64_t>(1, hosts / 4)) {
    worlds.push_back(hosts * host);
  }
  for (std::int64_t world : worlds) {
    Result<cluster::Cluster> cluster = cluster::with_devices(problem.cluster, world);
    if (!cluster) continue;
    Problem smaller = problem;
    smaller.cluster = *cluster;
    Evaluator evaluator(smaller);
    Search search(evaluator, options);
    search.screen_world(static_cast<int>(world));
    if (!search.any_fits()) continue;
    best = search.fastest();
    return world;
  }
  return 0;
}

}  // namespace trireme::planner
