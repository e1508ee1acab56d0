#include "supervisor/reshape.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "base/divisors.h"
#include "planner/evaluator.h"

namespace trireme::supervisor {
namespace {

using model::Recompute;
using plan::Layout;
using plan::ReduceWhen;
using plan::ScheduleKind;

// Chunks a stage that are tried, and chunks in all: beyond lie no models.
constexpr int kMostInterleave = 64;
constexpr int kMostChunks = 1024;

// Hosts of equal cores, one a slot: to rank layouts by, no more.
cluster::Cluster plain_cluster() {
  cluster::Cluster plain;
  plain.device = {.name = "core", .memory = {24'000'000'000}};
  plain.device.bf16_flops_per_s = plain.device.fp32_flops_per_s = 200e9;
  plain.device.memory_bytes_per_s = 20e9;
  plain.inside = {.bytes_per_s = 8e9, .latency = {1e-6}};
  plain.between = {.bytes_per_s = 1e9, .latency = {20e-6}};
  return plain;
}

// The engine computes in fp32; a cluster of one host may have no link between hosts.
cluster::Cluster ranking_cluster(const ReshapeProblem& problem) {
  const cluster::Cluster plain = plain_cluster();
  cluster::Cluster cluster = problem.cluster.value_or(plain);
  if (cluster.device.fp32_flops_per_s <= 0) cluster.device.fp32_flops_per_s = cluster.device.bf16_flops_per_s;
  if (cluster.inside.bytes_per_s <= 0) cluster.inside = plain.inside;
  if (cluster.between.bytes_per_s <= 0) cluster.between = plain.between;
  return cluster;
}

// Slots as tensor groups fill them that stay on a host.
std::vector<Host> whole_groups(std::vector<Host> hosts, int tp) {
  for (Host& host : hosts) host.slots -= host.slots % tp;
  return hosts;
}

std::int64_t slots_of(const std::vector<Host>& hosts) {
  std::int64_t sum = 0;
  for (const Host& host : hosts) sum += host.slots;
  return sum;
}

// Ranks of the host that has most of the first `world`.
int busiest(const std::vector<Host>& hosts, std::int64_t world) {
  std::int64_t most = 1, left = world;
  for (const Host& host : hosts) {
    most = std::max(most, std::min<std::int64_t>(host.slots, left));
    left -= host.slots;
    if (left <= 0) break;
  }
  return static_cast<int>(most);
}

// Where the ranks of a tensor degree may be.
class Room {
 public:
  Room(const std::vector<Host>& hosts, int tp, bool allow_slow_tp)
      : tp_(tp), whole_(whole_groups(hosts, tp)), whole_slots_(slots_of(whole_)) {
    all_ = allow_slow_tp ? hosts : whole_;
    slots_ = slots_of(all_);
  }
  std::int64_t slots() const { return slots_; }
  Placement placement(int world) const { return place(crosses(world) ? all_ : whole_, world); }
  // As the planner knows hosts: all alike. A tensor group that leaves a host is taken to be cut evenly.
  int ranks_per_host(int world) const {
    if (!crosses(world)) return busiest(whole_, world);
    const int most = busiest(all_, world);
    int even = 1;
    for (int part : divisors(tp_)) {
      if (part < tp_ && part <= most) even = part;
    }
    return even;
  }

 private:
  bool crosses(int world) const { return world > whole_slots_; }

  int tp_;
  std::vector<Host> whole_;
  std::int64_t whole_slots_;
  std::vector<Host> all_;
  std::int64_t slots_ = 0;
};

// How far from what was asked a layout may be, if nothing nearer fits.
enum class Freedom { kDegrees, kMemory, kReduction };

// A layout with the planner's bound of its step time. Of equal times the one with the fewest changes is better, and
// what then differs decides in a fixed order.
struct Candidate {
  Layout layout;
  double seconds = 0;
};

class Chooser {
 public:
  Chooser(const ReshapeProblem& problem, std::vector<Host> hosts, planner::Problem planned)
      : problem_(problem),
        asked_(problem.layout),
        hosts_(std::move(hosts)),
        planned_(std::move(planned)),
        table_(model::make_parameter_table(problem.model)) {
    if (problem.memory_limit.count > 0) {
      memory_ = problem.memory_limit;
    } else if (problem.cluster) {
      memory_ = problem.cluster->device.memory;
    }
  }

  std::optional<ReshapeChoice> as_asked() {
    if (!legal(asked_) || room(asked_.tp).slots() < asked_.world()) return std::nullopt;
    return chosen(asked_, evaluator(asked_).simulate(choice_of(asked_)));
  }

  std::optional<ReshapeChoice> best() {
    for (Freedom freedom : {Freedom::kDegrees, Freedom::kMemory, Freedom::kReduction}) {
      if (memory_.count == 0 && freedom != Freedom::kDegrees) break;
      std::vector<Candidate> candidates = screened(freedom);
      if (std::optional<ReshapeChoice> choice = fastest(std::move(candidates))) return choice;
    }
    return std::nullopt;
  }

 private:
  bool legal(const Layout& layout) const { return plan::check_layout(problem_.model, layout, problem_.batch).ok(); }

  const Room& room(int tp) { return rooms_.try_emplace(tp, hosts_, tp, problem_.allow_slow_tp).first->second; }

  planner::Evaluator& evaluator(const Layout& layout) {
    const int ranks = room(layout.tp).ranks_per_host(layout.world());
    const auto known = evaluators_.find(ranks);
    if (known != evaluators_.end()) return known->second;
    planner::Problem problem = planned_;
    problem.cluster.devices_per_host = ranks;
    problem.cluster.cards_per_host = std::min(problem.cluster.cards_per_host, ranks);
    return evaluators_.emplace(ranks, std::move(problem)).first->second;
  }

  planner::Choice choice_of(const Layout& layout) const {
    planner::Choice choice = planner::choice_of(layout, problem_.batch.micro_batch);
    if (choice.interleave == 1 && choice.schedule == ScheduleKind::kInterleaved) {
      choice.schedule = ScheduleKind::kOneFOneB;
    }
    return choice;
  }

  ReshapeChoice chosen(const Layout& layout, double seconds) {
    return {.layout = layout, .placement = room(layout.tp).placement(layout.world()), .predicted_step_s = seconds};
  }

  // The layout as asked with these degrees. What they make illegal is left out.
  Layout with_degrees(int tp, int pp, int dp, int interleave) const {
    Layout layout = asked_;
    layout.tp = tp;
    layout.pp = pp;
    layout.dp = dp;
    layout.interleave = interleave;
    if (interleave == 1 && layout.schedule == ScheduleKind::kInterleaved) layout.schedule = ScheduleKind::kOneFOneB;
    if (tp == 1 || problem_.batch.sequence % tp != 0) layout.sequence_parallel = false;
    if (dp == 1) layout.all_reduce = ReduceAlgorithm::kOrdered;
    if (layout.chunks() != asked_.chunks()) layout.chunk_layers.clear();
    return layout;
  }

  template <class Visit>
  void each_degrees(const Visit& visit) {
    const std::int64_t slots = slots_of(hosts_);
    for (std::int64_t tp : divisors(problem_.model.heads)) {
      if (tp > slots) break;
      const std::int64_t here = room(static_cast<int>(tp)).slots();
      for (std::int64_t pp = 1; pp <= problem_.model.layers && tp * pp <= here; ++pp) {
        for (std::int64_t dp : divisors(problem_.batch.global_batch / problem_.batch.micro_batch)) {
          if (dp > here / (tp * pp)) break;
          visit(static_cast<int>(tp), static_cast<int>(pp), static_cast<int>(dp));
        }
      }
    }
  }

  // Chunks a stage: several only where they were asked for.
  int most_interleave(int pp) const {
    if (asked_.schedule != ScheduleKind::kInterleaved || pp == 1) return 1;
    return std::max(1, std::min({static_cast<int>(problem_.model.layers) / pp, kMostInterleave, kMostChunks / pp}));
  }

  // Legal, and by the planner's estimate within the limit.
  std::vector<Candidate> screened(Freedom freedom) {
    std::vector<Candidate> candidates;
    each_degrees([&](int tp, int pp, int dp) {
      for (int interleave = 1; interleave <= most_interleave(pp); ++interleave) {
        const Layout layout = with_degrees(tp, pp, dp, interleave);
        if (freedom == Freedom::kDegrees) {
          offer(layout, candidates);
        } else {
          offer_smaller(layout, freedom, candidates);
        }
      }
    });
    return candidates;
  }

  // The layout with more of its state sharded and more of its activations computed again.
  void offer_smaller(Layout layout, Freedom freedom, std::vector<Candidate>& candidates) {
    const int most_zero = layout.dp > 1 ? 3 : asked_.zero;
    for (int zero = asked_.zero; zero <= most_zero; ++zero) {
      Layout smaller = layout;
      smaller.zero = zero;
      if (freedom == Freedom::kReduction && plan::default_reduce(zero) == ReduceWhen::kMicrobatch) {
        smaller.reduce = ReduceWhen::kMicrobatch;
        smaller.bucket = 0;
      }
      const bool shards = zero > 0 || smaller.reduce == ReduceWhen::kMicrobatch;
      if (shards && smaller.all_reduce != ReduceAlgorithm::kRing) smaller.all_reduce = ReduceAlgorithm::kOrdered;
      for (Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
        if (recompute < asked_.recompute) continue;
        smaller.recompute = recompute;
        offer(smaller, candidates);
      }
    }
  }

  void offer(const Layout& layout, std::vector<Candidate>& candidates) {
    if (!legal(layout)) return;
    const planner::Screened screened = evaluator(layout).screen(choice_of(layout));
    if (memory_.count > 0 && screened.memory > static_cast<double>(memory_.count)) return;
    candidates.push_back({layout, screened.time});
  }

  // Smaller is nearer to what was asked.
  auto changes(const Layout& layout) const {
    return std::tuple(layout.tp != asked_.tp, layout.pp != asked_.pp, layout.interleave != asked_.interleave,
                      layout.zero, layout.recompute, layout.sequence_parallel != asked_.sequence_parallel,
                      layout.world(), layout.tp, layout.pp, layout.interleave);
  }

  // To the byte, as the ledger of each stage's first and last tensor rank will have it.
  bool fits(const Layout& layout) {
    if (memory_.count == 0) return true;
    for (int stage = 0; stage < layout.pp; ++stage) {
      for (int tensor : {0, layout.tp - 1}) {
        const int rank = plan::rank_of(layout, {.tp = tensor, .pp = stage, .dp = 0});
        if (plan::predict_memory(table_, layout, problem_.batch, problem_.inputs, rank).peak_sum() > memory_)
          return false;
        if (layout.tp == 1) break;
      }
    }
    return true;
  }

  std::optional<ReshapeChoice> fastest(std::vector<Candidate> candidates) {
    const auto order = [&](const Candidate& a, const Candidate& b) {
      if (a.seconds != b.seconds) return a.seconds < b.seconds;
      return changes(a.layout) < changes(b.layout);
    };
    std::ranges::sort(candidates, order);
    std::optional<Candidate> best;
    for (const Candidate& candidate : candidates) {
      if (best && candidate.seconds > best->seconds) break;  // a bound: no later one is faster
      const Candidate simulated{candidate.layout, evaluator(candidate.layout).simulate(choice_of(candidate.layout))};
      if ((!best || order(simulated, *best)) && fits(simulated.layout)) best = simulated;
    }
    if (!best) return std::nullopt;
    return chosen(best->layout, best->seconds);
  }

  const ReshapeProblem& problem_;
  const Layout& asked_;
  std::vector<Host> hosts_;
  planner::Problem planned_;
  Bytes memory_;  // of a rank; 0: no limit
  model::ParameterTable table_;
  std::map<int, Room> rooms_;
  std::map<int, planner::Evaluator> evaluators_;  // by ranks a host
};

}  // namespace

std::optional<ReshapeChoice> choose_layout(const ReshapeProblem& problem, const std::vector<Host>& hosts) {
  const plan::Batch& batch = problem.batch;
  if (batch.micro_batch < 1 || batch.global_batch < 1 || batch.global_batch % batch.micro_batch != 0) {
    return std::nullopt;
  }
  std::vector<Host> usable;
  std::ranges::copy_if(hosts, std::back_inserter(usable), [](const Host& host) { return !host.spare; });
  Result<planner::Problem> planned =
      planner::make_problem(problem.model, ranking_cluster(problem), batch.global_batch, batch.sequence,
                            problem.inputs.compute, planner::default_calibration(), "trireme");
  if (!planned) return std::nullopt;
  planner::Problem plain = *planned;
  if (problem.inputs.fp32_gradients) planner::keep_gradients_in_fp32(plain);
  plain.framework.context = {};  // a rank is a process of its host: all that it holds is booked
  Chooser chooser(problem, std::move(usable), std::move(plain));
  if (std::optional<ReshapeChoice> asked = chooser.as_asked()) return asked;
  return chooser.best();
}

}  // namespace trireme::supervisor
