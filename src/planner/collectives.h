#pragma once

// What a collective costs, by algorithm: bytes that a rank sends, messages one after another, seconds. Alpha-beta
// (Hockney) over the real hierarchy: a message costs latency + bytes / bandwidth. Sources: Thakur, Rabenseifner and
// Gropp 2005 (ring, recursive forms), Sanders et al. 2009 (double tree), Patarasuk and Yuan 2009 (ring's bound).

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "cluster/cluster.h"

namespace trireme::planner {

enum class CollectiveOp { kAllReduce, kReduceScatter, kAllGather, kSend };
std::string_view collective_op_name(CollectiveOp op);

// kRing: neighbours in a circle. kDirect: every owner gets each contribution straight from its rank (the default of
// ordered mode for reduce-scatter; its all-gather is the ring's). kTree: double binary tree, pipelined (all-reduce
// only). kHierarchical: reduce-scatter inside hosts, the rest across hosts, all-gather inside. kHub: all to rank 0 and
// back, for comparison: its busiest rank's traffic grows with N.
enum class CollectiveAlgorithm { kRing, kDirect, kTree, kHierarchical, kHub };
std::string_view collective_algorithm_name(CollectiveAlgorithm algorithm);

// A group of `size` ranks, `per_host` of them on each host (size on one host: per_host == size). `sharing`: how many
// ranks of one host send across hosts at the same time through its cards, for the whole traffic of the host: ranks of
// a host that belong to groups of this kind, all groups busy at once.
struct GroupPlace {
  int size = 1;
  int per_host = 1;
  int sharing = 1;
  bool crosses_hosts() const { return per_host < size; }
};

// Links as a rank sees them.
struct Links {
  double inside_bytes_per_s = 0;  // a device, one direction
  Seconds inside_latency;
  double host_bytes_per_s = 0;  // all cards of one host together, one direction
  Seconds between_latency;
};
Links links_of(const cluster::Cluster& cluster);

struct CollectiveCost {
  double bytes_per_rank = 0;          // sent by a rank (kHub: through the hub's link, in and out)
  double between_bytes_per_rank = 0;  // of these, across hosts (mean over the ranks)
  int messages = 0;                   // one after another
  Seconds time;
};

// `bytes`: the whole buffer (all-gather: of the result, reduce-scatter: of the input, send: of the message). A group of
// one costs nothing. kTree and kHub exist for all three collectives as what they would send.
CollectiveCost collective_cost(CollectiveOp op, CollectiveAlgorithm algorithm, double bytes, const GroupPlace& group,
                               const Links& links);

}  // namespace trireme::planner
