#include <algorithm>

#include <fmt/format.h>

#include "base/divisors.h"
#include "cli/plan_commands.h"
#include "cli/plan_values.h"
#include "planner/collectives.h"

namespace trireme::cli {
namespace {

using planner::CollectiveAlgorithm;
using planner::CollectiveCost;
using planner::CollectiveOp;

constexpr int kMostRanks = 1 << 20;
constexpr Bytes kLeastBareMessage{1000};
constexpr CollectiveOp kOps[] = {CollectiveOp::kAllReduce, CollectiveOp::kReduceScatter, CollectiveOp::kAllGather};

struct Options {
  std::string bytes, ranks, link, latency, ranks_per_host, host_link;
  bool json = false;
};

// What was asked, as values.
struct Question {
  double bytes = 0;
  int ranks = 1;
  int per_host = 0;  // 0: all on one host
  planner::Links links;

  bool crosses() const { return per_host > 0 && ranks > per_host; }
  planner::GroupPlace place(int size) const {
    const int here = per_host == 0 ? size : std::min(size, per_host);
    return {.size = size, .per_host = here, .sharing = here};
  }
  CollectiveCost cost(CollectiveOp op, CollectiveAlgorithm algorithm, int size) const {
    return planner::collective_cost(op, algorithm, bytes, place(size), links);
  }
};

void read_hosts(const Options& options, Question& question) {
  if (options.ranks_per_host.empty() && options.host_link.empty()) return;
  question.per_host = whole_number("--ranks-per-host", options.ranks_per_host, "8", kMostRanks);
  if (question.ranks > question.per_host && question.ranks % question.per_host != 0) {
    std::vector<int> legal = divisors(question.ranks);
    refuse("--ranks-per-host", options.ranks_per_host,
           fmt::format("must divide --ranks ({}), so that all hosts hold as many", question.ranks),
           nearest_of(legal, question.per_host));
  }
  if (!question.crosses() && options.host_link.empty()) return;  // all on one host
  question.links.host_bytes_per_s = positive_bytes_per_second("--host-link", options.host_link, "50GB/s");
}

Question read(const Options& options) {
  Question question;
  question.bytes = positive_bytes("--bytes", options.bytes, "14GB", kLeastBareMessage);
  question.ranks = whole_number("--ranks", options.ranks, "8", kMostRanks);
  question.links.inside_bytes_per_s = positive_bytes_per_second("--link", options.link, "200GB/s");
  question.links.inside_latency = seconds_or_zero("--latency", options.latency);
  question.links.between_latency = question.links.inside_latency;
  read_hosts(options, question);
  return question;
}

std::vector<CollectiveAlgorithm> algorithms_for(const Question& question) {
  std::vector<CollectiveAlgorithm> algorithms{CollectiveAlgorithm::kRing, CollectiveAlgorithm::kDirect,
                                              CollectiveAlgorithm::kTree};
  if (question.crosses()) algorithms.push_back(CollectiveAlgorithm::kHierarchical);
  algorithms.push_back(CollectiveAlgorithm::kHub);
  return algorithms;
}

// 2, 4, 8, ... 512, where the hosts are filled evenly; on one host where no link between them is known.
std::vector<int> group_sizes(const Question& question) {
  std::vector<int> sizes;
  for (int size = 2; size <= 512; size *= 2) {
    const bool inside = question.per_host == 0 || size <= question.per_host;
    const bool between = question.links.host_bytes_per_s > 0;
    if (inside || (between && size % question.per_host == 0)) sizes.push_back(size);
  }
  return sizes;
}

// A hub of very many ranks may see more than 2^63 bytes.
std::string bytes_text(double bytes) {
  if (bytes >= 0x1p62) return fmt::format("{:.2e} B", bytes);
  return format_bytes({static_cast<std::int64_t>(bytes + 0.5)});
}
std::string rate_text(double bytes_per_s) { return bytes_text(bytes_per_s) + "/s"; }

Json cost_json(const CollectiveCost& cost) {
  return Json::object({{"bytes_per_rank", cost.bytes_per_rank},
                       {"time_s", cost.time.count},
                       {"messages", cost.messages},
                       {"between_hosts_bytes_per_rank", cost.between_bytes_per_rank}});
}

Json to_json(const Question& question) {
  Json result = Json::object({{"bytes", question.bytes}, {"ranks", question.ranks}});
  for (CollectiveOp op : kOps) {
    std::string key(planner::collective_op_name(op));
    std::replace(key.begin(), key.end(), '-', '_');
    result[key] = cost_json(question.cost(op, CollectiveAlgorithm::kRing, question.ranks));
  }
  Json algorithms = Json::array();
  for (CollectiveOp op : kOps) {
    for (CollectiveAlgorithm algorithm : algorithms_for(question)) {
      Json entry = Json::object({{"collective", planner::collective_op_name(op)},
                                 {"algorithm", planner::collective_algorithm_name(algorithm)}});
      const Json cost = cost_json(question.cost(op, algorithm, question.ranks));
      for (const Json::Member& member : cost.as_object()) entry[member.first] = member.second;
      algorithms.push_back(entry);
    }
  }
  result["algorithms"] = algorithms;
  Json by_ranks = Json::array();
  for (int size : group_sizes(question)) {
    const CollectiveCost ring = question.cost(CollectiveOp::kAllReduce, CollectiveAlgorithm::kRing, size);
    const CollectiveCost hub = question.cost(CollectiveOp::kAllReduce, CollectiveAlgorithm::kHub, size);
    by_ranks.push_back(Json::object({{"ranks", size},
                                     {"ring_bytes_per_rank", ring.bytes_per_rank},
                                     {"ring_time_s", ring.time.count},
                                     {"hub_bytes", hub.bytes_per_rank},
                                     {"hub_time_s", hub.time.count}}));
  }
  result["by_ranks"] = by_ranks;
  return result;
}

void print(const Question& question) {
  fmt::print("{} over {} rank{}, {} a link", bytes_text(question.bytes), question.ranks, question.ranks == 1 ? "" : "s",
             rate_text(question.links.inside_bytes_per_s));
  fmt::print(", {} a message\n", format_seconds(question.links.inside_latency));
  if (question.crosses()) {
    fmt::print("{} hosts of {} ranks, {} out of each host for all of them\n", question.ranks / question.per_host,
               question.per_host, rate_text(question.links.host_bytes_per_s));
  }
  fmt::print("\n{:<16}{:<14}{:>14}", "collective", "algorithm", "bytes a rank");
  if (question.crosses()) fmt::print("{:>15}", "across hosts");
  fmt::print("{:>11}{:>14}\n", "messages", "time");
  for (CollectiveOp op : kOps) {
    for (CollectiveAlgorithm algorithm : algorithms_for(question)) {
      const CollectiveCost cost = question.cost(op, algorithm, question.ranks);
      const bool first = algorithm == CollectiveAlgorithm::kRing;
      fmt::print("{:<16}{:<14}{:>14}", first ? planner::collective_op_name(op) : "",
                 planner::collective_algorithm_name(algorithm), bytes_text(cost.bytes_per_rank));
      if (question.crosses()) fmt::print("{:>15}", bytes_text(cost.between_bytes_per_rank));
      fmt::print("{:>11}{:>14}\n", cost.messages, format_seconds(cost.time));
    }
  }
  fmt::print("the hub's bytes are those through rank 0's link, in and out\n");

  fmt::print("\n{:<12}{:>22}{:>14}{:>20}{:>14}\n", "all-reduce", "ring, bytes a rank", "time", "hub, its bytes",
             "time");
  for (int size : group_sizes(question)) {
    const CollectiveCost ring = question.cost(CollectiveOp::kAllReduce, CollectiveAlgorithm::kRing, size);
    const CollectiveCost hub = question.cost(CollectiveOp::kAllReduce, CollectiveAlgorithm::kHub, size);
    fmt::print("{:<12}{:>22}{:>14}{:>20}{:>14}\n", fmt::format("{} ranks", size), bytes_text(ring.bytes_per_rank),
               format_seconds(ring.time), bytes_text(hub.bytes_per_rank), format_seconds(hub.time));
  }
}

}  // namespace

void declare_plan_comms(Command& plan, Env&) {
  auto options = std::make_shared<Options>();
  Command& command = plan.command("comms", "What a collective moves and takes, by algorithm");
  command.option("bytes", options->bytes, "the whole buffer, e.g. 14GB");
  command.option("ranks", options->ranks, "ranks of the group");
  command.option("link", options->link, "what a rank sends inside its host, one direction, e.g. 200GB/s or 400Gb/s");
  command.option("latency", options->latency, "of one message, e.g. 5us (0 where not given)");
  command.option("ranks-per-host", options->ranks_per_host, "ranks on each host (all where not given)");
  command.option("host-link", options->host_link, "what all network cards of a host send together, one direction");
  command.flag("json", options->json, "one JSON object on standard output");
  command.examples(
      "  trireme plan comms --bytes 14GB --ranks 8 --link 200GB/s\n"
      "  trireme plan comms --bytes 14GB --ranks 64 --link 450GB/s --latency 5us --ranks-per-host 8 --host-link "
      "400GB/s");
  command.run([options] {
    const Question question = read(*options);
    if (options->json) {
      fmt::print("{}\n", to_json(question).dump(2));
    } else {
      print(question);
    }
    return ExitCode::kDone;
  });
}

}  // namespace trireme::cli
