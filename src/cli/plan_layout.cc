#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "base/divisors.h"
#include "cli/plan_commands.h"
#include "cli/plan_values.h"
#include "plan/layout.h"

namespace trireme::cli {
namespace {

using plan::Axis;
using plan::Layout;

constexpr int kMostRanks = 1 << 20;
constexpr int kHostsShown = 8;
constexpr Axis kAxes[] = {Axis::kTensor, Axis::kPipeline, Axis::kData};

struct Options {
  std::string world, ranks_per_host, tp, pp, dp, order;
  bool allow_slow_tp = false;
  bool all = false;
  bool json = false;
};

struct Question {
  int world = 1;
  int per_host = 1;  // ranks on each host; the world where it is smaller than a host
  int tp = 0;        // 0: not given
  int pp = 0;
  int dp = 0;
  plan::AxisOrder order = plan::AxisOrder::kTpPpDp;
  bool slow_tp = false;

  int host_of(int rank) const { return rank / per_host; }
  int hosts() const { return world / per_host; }
  bool tp_legal(int degree) const { return world % degree == 0 && (slow_tp || per_host % degree == 0); }
};

std::vector<int> legal_tp(const Question& question) {
  std::vector<int> legal = divisors(question.world);
  std::erase_if(legal, [&](int degree) { return !question.tp_legal(degree); });
  return legal;
}

void read_tp(const Options& options, Question& question) {
  if (options.tp.empty()) return;
  question.tp = whole_number("--tp", options.tp, "8", kMostRanks);
  const std::string nearest = nearest_of(legal_tp(question), question.tp);
  if (!question.slow_tp && question.per_host % question.tp != 0) {
    refuse("--tp", options.tp,
           fmt::format("tensor parallelism would leave the host: tp must divide its {} ranks (--allow-slow-tp permits "
                       "it, over the network at every layer)",
                       question.per_host),
           nearest);
  }
  if (question.world % question.tp != 0) {
    refuse("--tp", options.tp, fmt::format("must divide --world ({})", question.world), nearest);
  }
}

void read_pp(const Options& options, Question& question) {
  if (options.pp.empty()) return;
  question.pp = whole_number("--pp", options.pp, "4", kMostRanks);
  const int tp = std::max(question.tp, 1);
  const int left = question.world / tp;
  if (left % question.pp != 0) {
    const std::string product = question.tp == 0 ? "pp" : fmt::format("tp * pp ({} * {})", question.tp, question.pp);
    refuse("--pp", options.pp, fmt::format("{} must divide --world ({})", product, question.world),
           nearest_of(divisors(left), question.pp));
  }
}

// What is left of the world: it may be said, and asks for layouts of its kind where tp or pp is open.
void read_dp(const Options& options, Question& question) {
  if (options.dp.empty()) return;
  question.dp = whole_number("--dp", options.dp, "8", kMostRanks);
  const int left = question.world / std::max(question.tp, 1) / std::max(question.pp, 1);
  const bool open = question.tp == 0 || question.pp == 0;
  if (open ? left % question.dp == 0 : left == question.dp) return;
  refuse("--dp", options.dp, fmt::format("tp x pp x dp must {} --world ({})", open ? "divide" : "be", question.world),
         open ? nearest_of(divisors(left), question.dp) : fmt::format("{}", left));
}

Question read(const Options& options) {
  Question question;
  question.world = whole_number("--world", options.world, "256", kMostRanks);
  question.per_host =
      std::min(question.world, whole_number("--ranks-per-host", options.ranks_per_host, "8", kMostRanks));
  if (question.world % question.per_host != 0) {
    const int below = question.world / question.per_host * question.per_host;
    refuse("--world", options.world, fmt::format("must fill whole hosts of --ranks-per-host ({})", question.per_host),
           fmt::format("{}, {}", below, below + question.per_host));
  }
  question.slow_tp = options.allow_slow_tp;
  if (!options.order.empty()) {
    const Result<plan::AxisOrder> order = plan::parse_axis_order(options.order);
    if (!order.ok()) refuse("--order", options.order, "no such order of the axes, fastest first", "tp-pp-dp, tp-dp-pp");
    question.order = *order;
  }
  read_tp(options, question);
  read_pp(options, question);
  read_dp(options, question);
  return question;
}

// --- Without tp or pp: what is legal -------------------------------------------------------------------------------

std::vector<Layout> legal_layouts(const Question& question) {
  std::vector<Layout> layouts;
  for (int tp : legal_tp(question)) {
    if (question.tp != 0 && tp != question.tp) continue;
    for (int pp : divisors(question.world / tp)) {
      if (question.pp != 0 && pp != question.pp) continue;
      if (question.dp != 0 && tp * pp * question.dp != question.world) continue;
      layouts.push_back({.tp = tp, .pp = pp, .dp = question.world / tp / pp, .order = question.order});
    }
  }
  return layouts;
}

Json legal_json(const Question& question) {
  Json list = Json::array();
  for (const Layout& layout : legal_layouts(question)) {
    list.push_back(Json::object(
        {{"tp", layout.tp}, {"pp", layout.pp}, {"dp", layout.dp}, {"ranks_per_replica", layout.tp * layout.pp}}));
  }
  return Json::object(
      {{"world", question.world}, {"ranks_per_host", question.per_host}, {"hosts", question.hosts()}, {"legal", list}});
}

void print_legal(const Question& question) {
  const std::vector<Layout> layouts = legal_layouts(question);
  fmt::print("{} ranks on {} host{} of {}: {} legal layout{}", question.world, question.hosts(),
             question.hosts() == 1 ? "" : "s", question.per_host, layouts.size(), layouts.size() == 1 ? "" : "s");
  if (question.tp != 0) fmt::print(" with tp {}", question.tp);
  if (question.pp != 0) fmt::print(" with pp {}", question.pp);
  if (question.dp != 0) fmt::print(" with dp {}", question.dp);
  fmt::print("\n\n{:>8}{:>8}{:>8}{:>18}{:>18}\n", "tp", "pp", "dp", "ranks a replica", "hosts a replica");
  for (const Layout& layout : layouts) {
    const int replica = layout.tp * layout.pp;
    fmt::print("{:>8}{:>8}{:>8}{:>18}{:>18}\n", layout.tp, layout.pp, layout.dp, replica,
               fmt::format("{:.4g}", static_cast<double>(replica) / question.per_host));
  }
  fmt::print("\ngive --tp and --pp to see one of them\n");
}

// --- One layout ----------------------------------------------------------------------------------------------------

// The groups of one axis.
struct AxisGroups {
  Axis axis;
  std::vector<std::vector<int>> ranks;
  std::vector<int> hosts;  // of each group
  int crossing = 0;        // groups with more than one
};

AxisGroups groups_of(const Question& question, const Layout& layout, Axis axis) {
  AxisGroups groups{.axis = axis, .ranks = plan::process_groups(layout, axis), .hosts = {}, .crossing = 0};
  for (const std::vector<int>& group : groups.ranks) {
    std::set<int> hosts;
    for (int rank : group) hosts.insert(question.host_of(rank));
    groups.hosts.push_back(static_cast<int>(hosts.size()));
    groups.crossing += hosts.size() > 1 ? 1 : 0;
  }
  return groups;
}

Json layout_json(const Question& question, const Layout& layout) {
  Json map = Json::array();
  for (int rank = 0; rank < layout.world(); ++rank) {
    const plan::Coordinates at = plan::coordinates_of(layout, rank);
    map.push_back(
        Json::object({{"rank", rank}, {"host", question.host_of(rank)}, {"tp", at.tp}, {"pp", at.pp}, {"dp", at.dp}}));
  }
  Json groups = Json::object();
  for (Axis axis : kAxes) {
    const AxisGroups found = groups_of(question, layout, axis);
    Json list = Json::array();
    for (std::size_t i = 0; i < found.ranks.size(); ++i) {
      Json ranks = Json::array();
      for (int rank : found.ranks[i]) ranks.push_back(rank);
      list.push_back(
          Json::object({{"ranks", ranks}, {"hosts", found.hosts[i]}, {"crosses_hosts", found.hosts[i] > 1}}));
    }
    groups[plan::axis_name(axis)] = Json::object({{"size", static_cast<std::int64_t>(found.ranks.front().size())},
                                                  {"count", static_cast<std::int64_t>(found.ranks.size())},
                                                  {"crossing_hosts", found.crossing},
                                                  {"list", list}});
  }
  return Json::object({{"world", question.world},
                       {"tp", layout.tp},
                       {"pp", layout.pp},
                       {"dp", layout.dp},
                       {"order", plan::axis_order_name(layout.order)},
                       {"ranks_per_host", question.per_host},
                       {"hosts", question.hosts()},
                       {"ranks_per_replica", layout.tp * layout.pp},
                       {"map", map},
                       {"groups", groups}});
}

// "0-7", "0, 32, 64, ... 224": runs where they are runs, the first few and the last where they are not.
std::string ranks_text(const std::vector<int>& ranks) {
  if (ranks.size() > 1 && ranks.back() - ranks.front() + 1 == static_cast<int>(ranks.size())) {
    return fmt::format("{}-{}", ranks.front(), ranks.back());
  }
  if (ranks.size() <= 4) return fmt::format("{}", fmt::join(ranks, ", "));
  return fmt::format("{}, {}, {}, ... {}", ranks[0], ranks[1], ranks[2], ranks.back());
}

std::string crossing_text(const AxisGroups& groups) {
  if (groups.crossing == 0) return "none";
  if (groups.crossing == static_cast<int>(groups.ranks.size())) return fmt::format("all {}", groups.crossing);
  return fmt::format("{}", groups.crossing);
}

void print_groups(const Question& question, const Layout& layout) {
  fmt::print("\n{:<10}{:>8}{:>8}{:>15}{:>15}   {}\n", "groups", "count", "ranks", "hosts, most", "across hosts",
             "the first");
  for (Axis axis : kAxes) {
    const AxisGroups groups = groups_of(question, layout, axis);
    fmt::print("{:<10}{:>8}{:>8}{:>15}{:>15}   {}\n", plan::axis_name(axis), groups.ranks.size(),
               groups.ranks.front().size(), *std::max_element(groups.hosts.begin(), groups.hosts.end()),
               crossing_text(groups), ranks_text(groups.ranks.front()));
  }
}

std::string span_text(const std::set<int>& values) {
  return ranks_text(std::vector<int>(values.begin(), values.end()));
}

// A line a host: the coordinates that its ranks have.
void print_hosts(const Question& question, const Layout& layout) {
  fmt::print("\n{:>6}{:>16}{:>12}{:>12}{:>12}\n", "host", "ranks", "tp", "pp", "dp");
  const int shown = std::min(question.hosts(), kHostsShown);
  for (int host = 0; host < shown; ++host) {
    std::set<int> ranks, tp, pp, dp;
    for (int rank = host * question.per_host; rank < (host + 1) * question.per_host; ++rank) {
      const plan::Coordinates at = plan::coordinates_of(layout, rank);
      ranks.insert(rank);
      tp.insert(at.tp);
      pp.insert(at.pp);
      dp.insert(at.dp);
    }
    fmt::print("{:>6}{:>16}{:>12}{:>12}{:>12}\n", host, span_text(ranks), span_text(tp), span_text(pp), span_text(dp));
  }
  if (shown < question.hosts()) {
    fmt::print("   ... {} more hosts (--all lists every rank and group)\n", question.hosts() - shown);
  }
}

void print_all(const Question& question, const Layout& layout) {
  fmt::print("\n{:>8}{:>8}{:>8}{:>8}{:>8}\n", "rank", "host", "tp", "pp", "dp");
  for (int rank = 0; rank < layout.world(); ++rank) {
    const plan::Coordinates at = plan::coordinates_of(layout, rank);
    fmt::print("{:>8}{:>8}{:>8}{:>8}{:>8}\n", rank, question.host_of(rank), at.tp, at.pp, at.dp);
  }
  for (Axis axis : kAxes) {
    const AxisGroups groups = groups_of(question, layout, axis);
    fmt::print("\n{} groups\n", plan::axis_name(axis));
    for (std::size_t i = 0; i < groups.ranks.size(); ++i) {
      fmt::print("{:>8}: {}{}\n", i, fmt::join(groups.ranks[i], " "),
                 groups.hosts[i] > 1 ? fmt::format("   ({} hosts)", groups.hosts[i]) : "");
    }
  }
}

void print_layout(const Question& question, const Layout& layout, bool all) {
  const int replica = layout.tp * layout.pp;
  fmt::print("world {} = dp {} x pp {} x tp {}, order {}, {} host{} of {} rank{}\n", question.world, layout.dp,
             layout.pp, layout.tp, plan::axis_order_name(layout.order), question.hosts(),
             question.hosts() == 1 ? "" : "s", question.per_host, question.per_host == 1 ? "" : "s");
  fmt::print("a replica of the model is {} rank{} ({:.4g} host{})\n", replica, replica == 1 ? "" : "s",
             static_cast<double>(replica) / question.per_host, replica == question.per_host ? "" : "s");
  print_groups(question, layout);
  if (all) {
    print_all(question, layout);
  } else {
    print_hosts(question, layout);
  }
}

ExitCode run(const Options& options) {
  const Question question = read(options);
  if (question.tp == 0 || question.pp == 0) {
    if (options.json) {
      fmt::print("{}\n", legal_json(question).dump(2));
    } else {
      print_legal(question);
    }
    return ExitCode::kDone;
  }
  const Layout layout{
      .tp = question.tp, .pp = question.pp, .dp = question.world / question.tp / question.pp, .order = question.order};
  if (options.json) {
    fmt::print("{}\n", layout_json(question, layout).dump(2));
  } else {
    print_layout(question, layout, options.all);
  }
  return ExitCode::kDone;
}

}  // namespace

void declare_plan_layout(Command& plan, Env&) {
  auto options = std::make_shared<Options>();
  Command& command = plan.command("layout", "Which rank is what, on which host, in which groups");
  command.option("world", options->world, "ranks in all");
  command.option("ranks-per-host", options->ranks_per_host, "ranks on each host");
  command.option("tp", options->tp, "tensor parallel degree (every legal one is listed where it is not given)");
  command.option("pp", options->pp, "pipeline parallel degree (the same)");
  command.option("dp", options->dp, "data parallel degree (what is left of the world)");
  command.option("order", options->order, "of the axes, fastest first: tp-pp-dp (where not given) or tp-dp-pp");
  command.flag("allow-slow-tp", options->allow_slow_tp, "let tensor parallelism leave the host");
  command.flag("all", options->all, "every rank and every group");
  command.flag("json", options->json, "one JSON object on standard output");
  command.examples(
      "  trireme plan layout --world 256 --ranks-per-host 8 --tp 8 --pp 4\n"
      "  trireme plan layout --world 256 --ranks-per-host 8 --tp 8      the legal pp");
  command.run([options] { return run(*options); });
}

}  // namespace trireme::cli
