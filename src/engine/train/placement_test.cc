#include "engine/train/placement.h"

#include <gtest/gtest.h>

namespace trireme::train {
namespace {

const std::vector<std::string> kTwoHosts{"a", "a", "b", "b"};

TEST(Placement, TensorParallelismStaysOnAHost) {
  EXPECT_TRUE(check_placement({.tp = 2, .dp = 2}, kTwoHosts, false).ok());
  EXPECT_TRUE(check_placement({.pp = 2, .dp = 2}, kTwoHosts, false).ok());
  const Status refused = check_placement({.tp = 4}, kTwoHosts, false);
  ASSERT_FALSE(refused.ok());
  const std::string sentence = refused.failure().sentence();
  for (const char* word : {"layout.tp", "tensor axis", "ranks 0 and 2", "between a and b", "--allow-slow-tp"}) {
    EXPECT_NE(sentence.find(word), std::string::npos) << sentence;
  }
  EXPECT_TRUE(check_placement({.tp = 4}, kTwoHosts, true).ok());
  // Hosts that ranks alternate between.
  EXPECT_FALSE(check_placement({.tp = 2, .dp = 2}, {"a", "b", "a", "b"}, false).ok());
}

TEST(Placement, HostsAreNumberedAsTheyCome) {
  EXPECT_EQ(host_numbers({"b", "a", "b", "c"}), (std::vector<int>{0, 1, 0, 2}));
}

TEST(Placement, HostsOfARehearsalAreOneMachine) {
  EXPECT_EQ(ranks_of_machine({0, 1, 0, 2}, 2, false), (std::vector<int>{0, 2}));
  EXPECT_EQ(ranks_of_machine({0, 1, 0, 2}, 3, false), std::vector<int>{3});
  EXPECT_EQ(ranks_of_machine({0, 1, 0, 2}, 3, true), (std::vector<int>{0, 1, 2, 3}));
}

TEST(Placement, HostsAreListedWithTheirRanks) {
  EXPECT_EQ(describe_hosts(kTwoHosts), "a: ranks 0-1; b: ranks 2-3");
  EXPECT_EQ(describe_hosts({"a", "b", "a", "a", "b"}), "a: ranks 0, 2-3; b: ranks 1, 4");
  EXPECT_EQ(describe_hosts({"alone"}), "alone: rank 0");
}

TEST(Placement, SaysWhatCrossesHosts) {
  EXPECT_EQ(describe_crossings({.tp = 2, .dp = 2}, kTwoHosts), "tensor groups stay on a host; data groups cross hosts");
  EXPECT_EQ(describe_crossings({.tp = 2, .pp = 2}, kTwoHosts),
            "tensor groups stay on a host; pipeline groups cross hosts");
  EXPECT_EQ(describe_crossings({.pp = 2, .dp = 2}, kTwoHosts),  // the default order: tp, pp, dp
            "pipeline groups stay on a host; data groups cross hosts");
  EXPECT_EQ(describe_crossings({.pp = 2, .dp = 2, .order = plan::AxisOrder::kTpDpPp}, kTwoHosts),
            "pipeline groups cross hosts; data groups stay on a host");
  EXPECT_EQ(describe_crossings({.dp = 2}, {"a", "a"}), "");
}

}  // namespace
}  // namespace trireme::train
