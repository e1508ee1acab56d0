#pragma once

// All legal layouts of a model on a cluster, ranked. Closed forms screen; the schedule that the engine runs is
// simulated for the best, in the order of their bounds, until no other can be better: so the winner is the full
// search's.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "planner/evaluator.h"

namespace trireme::planner {

enum class Objective { kTime, kCost, kHeadroom };  // step time; device-seconds a step; memory of the worst rank
Result<Objective> parse_objective(std::string_view text);
std::string_view objective_name(Objective objective);

// What of a layout is given; the rest is searched.
struct Wanted {
  std::optional<int> tp = {}, pp = {}, dp = {}, interleave = {}, zero = {};
  std::optional<std::int64_t> micro_batch = {};
  std::optional<plan::ScheduleKind> schedule = {};
  std::optional<model::Recompute> recompute = {};
  std::optional<plan::AxisOrder> order = {};
  std::optional<bool> sequence_parallel = {};
  bool allow_slow_tp = false;  // tensor parallelism across hosts
  bool wide = false;           // also both ways of reducing and several prefetch depths
};

// The layout of the given values, 1 (or none) where not given; dp from the world where not given.
Choice choice_of(const Wanted& wanted, int world);

struct SearchOptions {
  Wanted wanted = {};
  Objective objective = Objective::kTime;
  Bytes device_memory = {};  // 0: the cluster's
  int show = 10;
  bool exhaustive = false;  // simulate every layout that fits (slow: to check the screening)
};

struct NearMiss {
  Choice choice;
  double time = 0;      // closed form
  double shortage = 0;  // bytes beyond the device's memory
};

struct SearchResult {
  std::int64_t screened = 0;  // layouts whose time and memory were worked out
  std::int64_t fitting = 0;
  double screening_s = 0;
  double simulating_s = 0;
  std::int64_t simulated = 0;
  bool winner_proved = false;         // no layout that was not simulated has a smaller bound
  std::vector<Estimate> best;         // by objective
  std::vector<Estimate> pareto;       // no other is both faster and smaller; by time
  std::vector<NearMiss> near_misses;  // faster than the best, but too large; by time
  std::optional<NearMiss> smallest;   // the least memory of all, if none fits
  const Estimate* winner() const { return best.empty() ? nullptr : &best.front(); }
};
SearchResult search(Evaluator& evaluator, const SearchOptions& options, Env& clock);

// Tensor degrees that the model allows on this cluster, ascending; pipeline degrees likewise.
std::vector<int> legal_tensor_degrees(const Problem& problem, int world, bool allow_slow_tp);
std::vector<int> legal_pipeline_degrees(const Problem& problem, int world, int tp);

// The fewest devices (whole hosts beyond one) on which some layout fits, up to `most`; 0 if none does. Its best layout
// goes to `best`.
std::int64_t smallest_fitting_world(const Problem& problem, const SearchOptions& options, std::int64_t most,
                                    std::optional<NearMiss>& best);

}  // namespace trireme::planner
