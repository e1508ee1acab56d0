#include "base/collective_bytes.h"

#include <vector>

#include <gtest/gtest.h>

namespace trireme {
namespace {

using enum ReduceAlgorithm;
using enum CollectiveKind;

std::vector<std::int64_t> sent(ReduceAlgorithm algorithm, CollectiveKind kind, std::int64_t count, int size,
                               const std::vector<int>& host_of = {}) {
  std::vector<std::int64_t> elements;
  for (int i = 0; i < size; ++i) elements.push_back(sent_elements(algorithm, kind, count, i, size, host_of));
  return elements;
}

using List = std::vector<std::int64_t>;

// Five elements of three members: shares of 1, 2 and 2.
TEST(CollectiveBytes, OrderedRingAndLibrarySendTheSame) {
  for (const ReduceAlgorithm algorithm : {kOrdered, kRing, kLibrary}) {
    EXPECT_EQ(sent(algorithm, kReduceScatter, 5, 3), (List{4, 3, 3}));
    EXPECT_EQ(sent(algorithm, kAllGather, 5, 3), (List{3, 3, 4}));
    EXPECT_EQ(sent(algorithm, kAllReduce, 5, 3), (List{7, 6, 7}));
    EXPECT_EQ(sent(algorithm, kSend, 5, 3), (List{5, 5, 5}));
  }
}

TEST(CollectiveBytes, RecursiveDoublingFoldsWhatIsBeyondAPowerOfTwo) {
  EXPECT_EQ(sent(kRecursiveDoubling, kAllReduce, 10, 2), (List{10, 10}));
  EXPECT_EQ(sent(kRecursiveDoubling, kAllReduce, 10, 3), (List{20, 10, 10}));
  EXPECT_EQ(sent(kRecursiveDoubling, kAllReduce, 10, 5), (List{30, 10, 20, 20, 20}));
  EXPECT_EQ(sent(kRecursiveDoubling, kAllReduce, 10, 8), List(8, 30));
  EXPECT_EQ(sent(kRecursiveDoubling, kReduceScatter, 5, 3), sent(kOrdered, kReduceScatter, 5, 3));
}

TEST(CollectiveBytes, HierarchicalSendsBetweenFirstRanksOnly) {
  EXPECT_EQ(sent(kHierarchical, kAllReduce, 10, 4, {7, 7, 7, 7}), (List{30, 10, 10, 10}));
  EXPECT_EQ(sent(kHierarchical, kAllReduce, 10, 4, {0, 0, 1, 1}), (List{10 + 10, 10, 10 + 10, 10}));
  EXPECT_EQ(sent(kHierarchical, kAllReduce, 10, 4, {1, 0, 1, 0}), (List{10 + 10, 10 + 10, 10, 10}));
  // Every member on a host of its own: the ring.
  EXPECT_EQ(sent(kHierarchical, kAllReduce, 5, 3, {2, 1, 0}), sent(kRing, kAllReduce, 5, 3));
  // Three first ranks (members 0, 2, 3), of whose ring that of {7, 6, 7} elements.
  EXPECT_EQ(sent(kHierarchical, kAllReduce, 5, 5, {4, 4, 9, 1, 1}), (List{7 + 5, 5, 6, 7 + 5, 5}));
}

TEST(CollectiveBytes, AGroupOfOneSendsNothing) {
  for (const ReduceAlgorithm algorithm : {kOrdered, kRing, kRecursiveDoubling, kHierarchical, kLibrary}) {
    for (const CollectiveKind kind : {kAllReduce, kReduceScatter, kAllGather, kSend}) {
      EXPECT_EQ(sent_elements(algorithm, kind, 10, 0, 1, std::vector<int>{3}), 0);
      EXPECT_EQ(staging_bytes(algorithm, kind, 10, 4, 1, {}).count, 0);
    }
  }
}

TEST(CollectiveBytes, ImpossibleMembersAreRefused) {
  EXPECT_THROW(sent_elements(kRing, kAllReduce, 10, 3, 3), InternalError);
  EXPECT_THROW(sent_elements(kRing, kAllReduce, -1, 0, 3), InternalError);
  EXPECT_THROW(sent_elements(kHierarchical, kAllReduce, 10, 0, 3), InternalError);
}

TEST(CollectiveBytes, StagingIsAFewSegmentsOrLess) {
  const SegmentOptions options{.segment = {128}, .window = 3};
  EXPECT_EQ(staging_bytes(kRing, kAllReduce, 1000, 4, 5, options).count, 6 * 128);
  EXPECT_EQ(staging_bytes(kRing, kReduceScatter, 11, 4, 5, options).count, 6 * 3 * 4);
  EXPECT_EQ(staging_bytes(kRecursiveDoubling, kAllReduce, 1000, 8, 5, options).count, 3 * 128);
  EXPECT_EQ(staging_bytes(kRecursiveDoubling, kAllReduce, 2, 8, 5, options).count, 3 * 16);
  EXPECT_EQ(staging_bytes(kHierarchical, kAllReduce, 1000, 4, 5, options).count, 6 * 128);
  EXPECT_EQ(staging_bytes(kRecursiveDoubling, kReduceScatter, 1000, 8, 5, options).count, 0);
  EXPECT_EQ(staging_bytes(kRing, kAllGather, 1000, 8, 5, options).count, 0);
  EXPECT_EQ(staging_bytes(kOrdered, kAllReduce, 1000, 8, 5, options).count, 0);
}

TEST(CollectiveBytes, MessagesStageAWindowFromEachOtherMember) {
  const SegmentOptions options{.segment = {128}, .window = 3};
  EXPECT_EQ(message_staging_bytes(1000, 4, 5, options, 1).count, 4 * 3 * 128);
  EXPECT_EQ(message_staging_bytes(1000, 4, 5, options).count, kStagedOperations * 4 * 3 * 128);
  // Shares of at most 3 elements, in one message: 24 bytes from each of two, rounded up.
  EXPECT_EQ(message_staging_bytes(7, 8, 3, options).count, kStagedOperations * 64);
  // 33 elements are two messages, the longest of 128 bytes.
  EXPECT_EQ(message_staging_bytes(66, 4, 2, options, 1).count, 2 * 128);
  EXPECT_EQ(message_staging_bytes(0, 4, 2, options).count, 0);
  EXPECT_EQ(message_staging_bytes(1000, 4, 1, options).count, 0);
  for (std::int64_t count = 0; count < 400; ++count) {
    EXPECT_LE(message_staging_bytes(count, 4, 3, options), message_staging_bytes(count + 1, 4, 3, options));
    EXPECT_LE(message_staging_bytes(count, 4, 3, options), message_staging_bytes(count, 8, 3, options));
  }
}

TEST(CollectiveBytes, AlgorithmsHaveNames) {
  for (const ReduceAlgorithm algorithm : {kOrdered, kRing, kRecursiveDoubling, kHierarchical, kLibrary}) {
    EXPECT_EQ(parse_reduce_algorithm(reduce_algorithm_name(algorithm)).value(), algorithm);
  }
  EXPECT_EQ(parse_reduce_algorithm("rign").failure().sentence(),
            "layout.all_reduce = rign: an algorithm for sums over ranks is one of ordered, ring, recursive-doubling, "
            "hierarchical, library; nearest legal: ring");
  EXPECT_THROW(reduce_algorithm_name(static_cast<ReduceAlgorithm>(17)), InternalError);
  EXPECT_EQ(collective_name(kReduceScatter), "reduce-scatter");
}

}  // namespace
}  // namespace trireme
