#include "planner/collectives.h"

#include <gtest/gtest.h>

namespace trireme::planner {
namespace {

using enum CollectiveOp;
using enum CollectiveAlgorithm;

constexpr double kGigabyte = 1e9;
constexpr double kBuffer = 14 * kGigabyte;
const Links kLink{
    .inside_bytes_per_s = 200 * kGigabyte, .inside_latency = {}, .host_bytes_per_s = 0, .between_latency = {}};

GroupPlace on_one_host(int n) { return {.size = n, .per_host = n, .sharing = n}; }

TEST(Ring, FourteenGigabytes) {
  struct Row {
    int ranks;
    double gigabytes, milliseconds;
  };
  for (const Row& row : {Row{8, 24.50, 122.5}, Row{64, 27.56, 137.8}, Row{512, 27.95, 139.7}}) {
    const CollectiveCost all_reduce = collective_cost(kAllReduce, kRing, kBuffer, on_one_host(row.ranks), kLink);
    EXPECT_NEAR(all_reduce.bytes_per_rank / kGigabyte, row.gigabytes, 0.005);
    EXPECT_NEAR(all_reduce.time.count * 1e3, row.milliseconds, 0.05);
    EXPECT_EQ(all_reduce.messages, 2 * (row.ranks - 1));
    EXPECT_EQ(all_reduce.between_bytes_per_rank, 0);
    for (CollectiveOp half : {kAllGather, kReduceScatter}) {
      const CollectiveCost cost = collective_cost(half, kRing, kBuffer, on_one_host(row.ranks), kLink);
      EXPECT_DOUBLE_EQ(2 * cost.bytes_per_rank, all_reduce.bytes_per_rank);
      EXPECT_DOUBLE_EQ(2 * cost.time.count, all_reduce.time.count);
      EXPECT_EQ(cost.messages, row.ranks - 1);
    }
  }
  EXPECT_DOUBLE_EQ(collective_cost(kAllGather, kRing, kBuffer, on_one_host(8), kLink).bytes_per_rank, 12.25e9);
  EXPECT_DOUBLE_EQ(collective_cost(kAllGather, kRing, kBuffer, on_one_host(8), kLink).time.count, 0.06125);
}

TEST(OneHost, EveryAlgorithm) {
  Links links = kLink;
  links.inside_latency = {1e-3};
  const auto cost = [&](CollectiveOp op, CollectiveAlgorithm algorithm) {
    return collective_cost(op, algorithm, kBuffer, on_one_host(8), links);
  };
  EXPECT_DOUBLE_EQ(cost(kAllReduce, kRing).time.count, 0.014 + 0.1225);
  EXPECT_DOUBLE_EQ(cost(kAllReduce, kDirect).time.count, 0.002 + 0.1225);
  EXPECT_DOUBLE_EQ(cost(kAllReduce, kDirect).bytes_per_rank, 24.5e9);
  EXPECT_EQ(cost(kReduceScatter, kDirect).messages, 1);
  EXPECT_DOUBLE_EQ(cost(kAllReduce, kTree).time.count, 0.006 + 0.14);  // 2 log2(8) hops, 2S
  EXPECT_DOUBLE_EQ(cost(kAllGather, kTree).time.count, 0.003 + 0.07);
  EXPECT_DOUBLE_EQ(cost(kAllReduce, kHierarchical).time.count, cost(kAllReduce, kRing).time.count);
  EXPECT_DOUBLE_EQ(cost(kAllReduce, kHub).bytes_per_rank, 2 * 7 * kBuffer);
  EXPECT_DOUBLE_EQ(cost(kAllReduce, kHub).time.count, 14 * (0.001 + 0.07));
  EXPECT_DOUBLE_EQ(cost(kReduceScatter, kHub).bytes_per_rank, 7 * (kBuffer + kBuffer / 8));
  EXPECT_DOUBLE_EQ(cost(kSend, kRing).time.count, 0.001 + 0.07);
  EXPECT_EQ(cost(kSend, kRing).messages, 1);
}

TEST(Tree, DepthIsRoundedUp) {
  for (const auto& [ranks, depth] : {std::pair{2, 1}, std::pair{3, 2}, std::pair{4, 2}, std::pair{5, 3}}) {
    EXPECT_EQ(collective_cost(kAllGather, kTree, 1, on_one_host(ranks), kLink).messages, depth) << ranks;
  }
}

// Four hosts of 8 ranks, 200 GB/s inside, 400 GB/s for all cards of a host.
class AcrossHosts : public testing::Test {
 protected:
  Links links_{
      .inside_bytes_per_s = 200e9, .inside_latency = {1e-6}, .host_bytes_per_s = 400e9, .between_latency = {1e-5}};
  CollectiveCost cost(CollectiveAlgorithm algorithm, const GroupPlace& group, CollectiveOp op = kAllReduce) const {
    return collective_cost(op, algorithm, 32e9, group, links_);
  }
};

TEST_F(AcrossHosts, RingHasTheSlowerOfItsLinks) {
  // One ring over all ranks has all cards: the inside link is the slower one. 62 steps of the slowest hop.
  const CollectiveCost wide = cost(kRing, {.size = 32, .per_host = 8, .sharing = 8});
  EXPECT_DOUBLE_EQ(wide.bytes_per_rank, 62e9);
  EXPECT_DOUBLE_EQ(wide.between_bytes_per_rank, 62e9 / 8);
  EXPECT_DOUBLE_EQ(wide.time.count, 62 * 1e-5 + 62e9 / 200e9);
  // Four rings of two ranks a host: a quarter of the cards each.
  const CollectiveCost four = cost(kRing, {.size = 8, .per_host = 2, .sharing = 8});
  EXPECT_DOUBLE_EQ(four.time.count, 14 * 1e-5 + 56e9 / 100e9);
  // Eight rings of one rank a host: an eighth, and no inside link.
  const CollectiveCost eight = cost(kRing, {.size = 4, .per_host = 1, .sharing = 8});
  EXPECT_DOUBLE_EQ(eight.between_bytes_per_rank, eight.bytes_per_rank);
  EXPECT_DOUBLE_EQ(eight.time.count, 6 * 1e-5 + 48e9 / 50e9);
}

TEST_F(AcrossHosts, DirectSendsMostOfItsBytesOverTheCards) {
  const GroupPlace group{.size = 32, .per_host = 8, .sharing = 8};
  const CollectiveCost direct = cost(kDirect, group, kReduceScatter);
  EXPECT_DOUBLE_EQ(direct.bytes_per_rank, 31e9);
  EXPECT_DOUBLE_EQ(direct.between_bytes_per_rank, 24e9);
  EXPECT_DOUBLE_EQ(direct.time.count, 1e-5 + 24e9 * 8 / 400e9);
  EXPECT_GT(direct.between_bytes_per_rank, 6 * cost(kRing, group, kReduceScatter).between_bytes_per_rank);
  // With one rank a host there is nothing to lose: the ring's bytes.
  const GroupPlace thin{.size = 4, .per_host = 1, .sharing = 8};
  EXPECT_DOUBLE_EQ(cost(kDirect, thin).between_bytes_per_rank, cost(kRing, thin).between_bytes_per_rank);
  EXPECT_DOUBLE_EQ(cost(kDirect, thin).time.count - 2e-5, cost(kRing, thin).time.count - 6e-5);
}

TEST_F(AcrossHosts, HierarchicalSendsTheRingsBytes) {
  const GroupPlace group{.size = 32, .per_host = 8, .sharing = 8};
  const CollectiveCost both = cost(kHierarchical, group);
  EXPECT_DOUBLE_EQ(both.bytes_per_rank, 62e9);         // 2 (n - 1) / n S, cut in two parts
  EXPECT_DOUBLE_EQ(both.between_bytes_per_rank, 6e9);  // 2 (3/4) S / 8
  EXPECT_EQ(both.messages, 14 + 6);
  EXPECT_DOUBLE_EQ(both.time.count, 14 * 1e-6 + 56e9 / 200e9 + 6 * 1e-5 + 6e9 * 8 / 400e9);
  EXPECT_DOUBLE_EQ(cost(kHierarchical, group, kReduceScatter).time.count, both.time.count / 2);
}

TEST_F(AcrossHosts, TreeHubAndSend) {
  const GroupPlace group{.size = 32, .per_host = 8, .sharing = 8};
  EXPECT_DOUBLE_EQ(cost(kTree, group).time.count, 10 * 1e-5 + 64e9 / 200e9);
  // The hub: 7 of its 31 peers are on its host. 48 whole buffers over the host's cards.
  EXPECT_DOUBLE_EQ(cost(kHub, group).time.count, 62 * 1e-5 + 48 * 32e9 / 400e9);
  EXPECT_DOUBLE_EQ(cost(kHub, group).between_bytes_per_rank, 48 * 32e9 / 32);
  EXPECT_DOUBLE_EQ(cost(kRing, {.size = 2, .per_host = 1, .sharing = 8}, kSend).time.count, 1e-5 + 32e9 / 50e9);
  EXPECT_DOUBLE_EQ(cost(kRing, {.size = 2, .per_host = 1, .sharing = 1}, kSend).between_bytes_per_rank, 32e9);
}

TEST(Group, OfOneCostsNothing) {
  for (CollectiveOp op : {kAllReduce, kReduceScatter, kAllGather, kSend}) {
    const CollectiveCost cost = collective_cost(op, kRing, kBuffer, {}, {});
    EXPECT_EQ(cost.bytes_per_rank, 0);
    EXPECT_EQ(cost.messages, 0);
    EXPECT_EQ(cost.time.count, 0);
  }
}

TEST(Group, ChecksItsInput) {
  EXPECT_THROW(collective_cost(kAllReduce, kRing, -1, on_one_host(2), kLink), InternalError);
  EXPECT_THROW(collective_cost(kAllReduce, kRing, 1, {.size = 0}, kLink), InternalError);
  EXPECT_THROW(collective_cost(kAllReduce, kRing, 1, {.size = 2, .per_host = 0}, kLink), InternalError);
  EXPECT_THROW(collective_cost(kAllReduce, kRing, 1, on_one_host(2), {}), InternalError);
  EXPECT_THROW(collective_cost(kAllReduce, kRing, 1, {.size = 2, .per_host = 1}, kLink), InternalError);
}

TEST(Links, OfACluster) {
  cluster::Cluster cluster;
  cluster.inside = {.bytes_per_s = 450e9, .latency = {1e-6}};
  cluster.between = {.bytes_per_s = 50e9, .latency = {5e-6}};
  cluster.cards_per_host = 8;
  const Links links = links_of(cluster);
  EXPECT_EQ(links.inside_bytes_per_s, 450e9);
  EXPECT_EQ(links.host_bytes_per_s, 400e9);
  EXPECT_EQ(links.inside_latency.count, 1e-6);
  EXPECT_EQ(links.between_latency.count, 5e-6);
}

TEST(Names, AllOfThem) {
  EXPECT_EQ(collective_op_name(kReduceScatter), "reduce-scatter");
  EXPECT_EQ(collective_op_name(kSend), "send");
  EXPECT_EQ(collective_algorithm_name(kHierarchical), "hierarchical");
  EXPECT_EQ(collective_algorithm_name(kHub), "hub");
}

}  // namespace
}  // namespace trireme::planner
