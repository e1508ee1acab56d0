#include "planner/collectives.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/check.h"

namespace trireme::planner {
namespace {

// All-reduce is a reduce-scatter and an all-gather: twice the cost of either.
int halves_of(CollectiveOp op) { return op == CollectiveOp::kAllReduce ? 2 : 1; }

// What the group's links give, with the constants of its place worked out once.
struct Way {
  double n = 1;         // ranks
  double per_host = 1;  // of them on one host
  bool crosses = false;
  double inside = 0;       // bytes a second of a rank
  double rank_share = 0;   // a rank's part of its host's cards, all ranks sending at once
  double group_share = 0;  // the part of all ranks of the group on one host
  double latency = 0;      // of the slowest hop
  double inside_latency = 0;
};

Way way_of(const GroupPlace& group, const Links& links) {
  TRIREME_CHECK(group.per_host >= 1, "{} ranks on a host", group.per_host);
  Way way{.n = static_cast<double>(group.size), .per_host = static_cast<double>(std::min(group.per_host, group.size))};
  way.crosses = group.crosses_hosts();
  way.inside = links.inside_bytes_per_s;
  way.inside_latency = links.inside_latency.count;
  way.latency = way.crosses ? links.between_latency.count : links.inside_latency.count;
  TRIREME_CHECK(way.per_host < 2 || way.inside > 0, "a link inside the host of {} bytes/s", way.inside);
  if (way.crosses) {
    TRIREME_CHECK(links.host_bytes_per_s > 0, "a link between hosts of {} bytes/s", links.host_bytes_per_s);
    way.rank_share = links.host_bytes_per_s / std::max(group.sharing, static_cast<int>(way.per_host));
    way.group_share = way.rank_share * way.per_host;
  }
  return way;
}

// The rate of an algorithm whose every rank sends at one pace, one rank of each host across: neighbours' links.
double chain_rate(const Way& way) {
  if (!way.crosses) return way.inside;
  return way.per_host > 1 ? std::min(way.inside, way.group_share) : way.group_share;
}

CollectiveCost chain_cost(const Way& way, double bytes, int messages) {
  return {.bytes_per_rank = bytes,
          .between_bytes_per_rank = way.crosses ? bytes / way.per_host : 0,
          .messages = messages,
          .time = {messages * way.latency + bytes / chain_rate(way)}};
}

CollectiveCost ring(CollectiveOp op, double bytes, const Way& way) {
  const int halves = halves_of(op);
  return chain_cost(way, halves * (way.n - 1) / way.n * bytes, halves * static_cast<int>(way.n - 1));
}

CollectiveCost tree(CollectiveOp op, double bytes, const Way& way) {
  const int halves = halves_of(op);
  const int depth = std::bit_width(static_cast<unsigned>(way.n) - 1);  // log2(n), up
  return chain_cost(way, halves * bytes, halves * depth);
}

// Seconds to move bytes inside the host and bytes across hosts at the same time.
double both_ways(const Way& way, double inside_bytes, double between_bytes, double between_rate) {
  const double inside = inside_bytes > 0 ? inside_bytes / way.inside : 0;
  return std::max(inside, between_bytes > 0 ? between_bytes / between_rate : 0);
}

// Each rank sends n - 1 messages of its shard, all at once, over its one link.
CollectiveCost direct(CollectiveOp op, double bytes, const Way& way) {
  const int halves = halves_of(op);
  const double shard = bytes / way.n;
  const double between = halves * shard * (way.n - way.per_host);
  const double inside = halves * shard * (way.per_host - 1);
  return {.bytes_per_rank = inside + between,
          .between_bytes_per_rank = between,
          .messages = halves,
          .time = {halves * way.latency + both_ways(way, inside, between, way.rank_share)}};
}

// A reduce-scatter inside the host, a ring over the hosts for each rank's shard, an all-gather inside.
CollectiveCost hierarchical(CollectiveOp op, double bytes, const Way& way) {
  if (!way.crosses || way.per_host < 2) return ring(op, bytes, way);
  const int halves = halves_of(op);
  const double hosts = std::ceil(way.n / way.per_host);
  const double inside = halves * (way.per_host - 1) / way.per_host * bytes;
  const double between = halves * (hosts - 1) / hosts * bytes / way.per_host;
  const int inside_steps = halves * static_cast<int>(way.per_host - 1);
  const int between_steps = halves * static_cast<int>(hosts - 1);
  return {.bytes_per_rank = inside + between,
          .between_bytes_per_rank = between,
          .messages = inside_steps + between_steps,
          .time = {inside_steps * way.inside_latency + inside / way.inside + between_steps * way.latency +
                   between / way.rank_share}};
}

// Rank 0 takes n - 1 buffers in and gives n - 1 out: whole ones where they are to be reduced or are the result,
// shards otherwise. All of it goes through the hub's link, one after the other.
CollectiveCost hub(CollectiveOp op, double bytes, const Way& way) {
  const double others = way.n - 1;
  const double each = op == CollectiveOp::kAllReduce ? 2 * bytes : bytes + bytes / way.n;
  const double traffic = others * each;
  const double between = traffic * (way.n - way.per_host) / others;
  const int messages = static_cast<int>(2 * others);
  return {.bytes_per_rank = traffic,
          .between_bytes_per_rank = between / way.n,
          .messages = messages,
          .time = {messages * way.latency + both_ways(way, traffic - between, between, way.group_share)}};
}

}  // namespace

std::string_view collective_op_name(CollectiveOp op) {
  switch (op) {
    case CollectiveOp::kAllReduce:
      return "all-reduce";
    case CollectiveOp::kReduceScatter:
      return "reduce-scatter";
    case CollectiveOp::kAllGather:
      return "all-gather";
    case CollectiveOp::kSend:
      return "send";
  }
  return "?";
}

std::string_view collective_algorithm_name(CollectiveAlgorithm algorithm) {
  switch (algorithm) {
    case CollectiveAlgorithm::kRing:
      return "ring";
    case CollectiveAlgorithm::kDirect:
      return "direct";
    case CollectiveAlgorithm::kTree:
      return "tree";
    case CollectiveAlgorithm::kHierarchical:
      return "hierarchical";
    case CollectiveAlgorithm::kHub:
      return "hub";
  }
  return "?";
}

Links links_of(const cluster::Cluster& cluster) {
  return {.inside_bytes_per_s = cluster.inside.bytes_per_s,
          .inside_latency = cluster.inside.latency,
          .host_bytes_per_s = cluster.between.bytes_per_s * cluster.cards_per_host,
          .between_latency = cluster.between.latency};
}

CollectiveCost collective_cost(CollectiveOp op, CollectiveAlgorithm algorithm, double bytes, const GroupPlace& group,
                               const Links& links) {
  TRIREME_CHECK(bytes >= 0 && std::isfinite(bytes), "a collective of {} bytes", bytes);
  TRIREME_CHECK(group.size >= 1, "a group of {} ranks", group.size);
  if (group.size == 1) return {};
  const Way way = way_of(group, links);
  if (op == CollectiveOp::kSend) {
    const double rate = way.crosses ? way.rank_share : way.inside;
    return {.bytes_per_rank = bytes,
            .between_bytes_per_rank = way.crosses ? bytes : 0,
            .messages = 1,
            .time = {way.latency + bytes / rate}};
  }
  switch (algorithm) {
    case CollectiveAlgorithm::kRing:
      return ring(op, bytes, way);
    case CollectiveAlgorithm::kDirect:
      return direct(op, bytes, way);
    case CollectiveAlgorithm::kTree:
      return tree(op, bytes, way);
    case CollectiveAlgorithm::kHierarchical:
      return hierarchical(op, bytes, way);
    case CollectiveAlgorithm::kHub:
      return hub(op, bytes, way);
  }
  return {};
}

}  // namespace trireme::planner
