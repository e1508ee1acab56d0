// The sums of `trireme plan` as people and scripts see them: figures, JSON keys, refusals.

#include <algorithm>
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/timed_schedule.h"
#include "support/program_json.h"

namespace trireme {
namespace {

using testing::at;
using ::testing::HasSubstr;
using testing::json_of;
using ::testing::Not;
using testing::number;
using testing::table_of;

// --- comms ---------------------------------------------------------------------------------------------------------

TEST(Comms, RingToTheDigit) {
  struct Row {
    int ranks;
    double gigabytes, milliseconds;
  };
  for (const Row& row : {Row{8, 24.50, 122.5}, Row{64, 27.56, 137.8}, Row{512, 27.95, 139.7}}) {
    const Json result = json_of("plan comms --bytes 14GB --link 200GB/s --ranks " + std::to_string(row.ranks));
    EXPECT_NEAR(number(at(result, "all_reduce"), "bytes_per_rank") / 1e9, row.gigabytes, 0.005);
    EXPECT_NEAR(number(at(result, "all_reduce"), "time_s") * 1e3, row.milliseconds, 0.05);
    EXPECT_EQ(number(at(result, "all_reduce"), "messages"), 2 * (row.ranks - 1));
  }
  const Json eight = json_of("plan comms --bytes 14GB --ranks 8 --link 200GB/s");
  for (const char* half : {"all_gather", "reduce_scatter"}) {
    EXPECT_DOUBLE_EQ(number(at(eight, half), "bytes_per_rank"), 12.25e9);
    EXPECT_DOUBLE_EQ(number(at(eight, half), "time_s"), 0.06125);
    EXPECT_EQ(number(at(eight, half), "messages"), 7);
  }
  EXPECT_EQ(at(eight, "algorithms").as_array().size(), 12U);  // ring, direct, tree, hub
  EXPECT_EQ(at(eight, "by_ranks").as_array().size(), 9U);
}

TEST(Comms, Table) {
  const std::string text = table_of("plan comms --bytes 14GB --ranks 8 --link 200GB/s");
  EXPECT_THAT(text, HasSubstr("14.00 GB over 8 ranks, 200.00 GB/s a link, 0 s a message\n"));
  EXPECT_THAT(text, HasSubstr("all-reduce      ring                24.50 GB         14      122.5 ms\n"));
  EXPECT_THAT(text, HasSubstr("                hub                196.00 GB         14      980.0 ms\n"));
  EXPECT_THAT(text, HasSubstr("512 ranks                 27.95 GB      139.7 ms            14.31 TB       71.54 s\n"));
  EXPECT_THAT(text, Not(HasSubstr("hierarchical")));
}

TEST(Comms, AcrossHosts) {
  const std::string question =
      "plan comms --bytes 14GB --ranks 64 --link 450GB/s --latency 5us --ranks-per-host 8 --host-link 400GB/s";
  const std::string text = table_of(question);
  EXPECT_THAT(text, HasSubstr("8 hosts of 8 ranks, 400.00 GB/s out of each host"));
  EXPECT_THAT(text, HasSubstr("hierarchical        27.56 GB        3.06 GB         28      115.8 ms"));
  const Json result = json_of(question);
  EXPECT_EQ(at(result, "algorithms").as_array().size(), 15U);
  EXPECT_DOUBLE_EQ(number(at(result, "all_reduce"), "time_s"), 126 * 5e-6 + 14e9 * 126 / 64 / 400e9);
  EXPECT_DOUBLE_EQ(number(at(result, "all_reduce"), "between_hosts_bytes_per_rank"), 14e9 * 126 / 64 / 8);
}

TEST(Comms, OneRankSendsNothing) {
  EXPECT_EQ(number(at(json_of("plan comms --bytes 1GB --ranks 1 --link 1GB/s"), "all_reduce"), "time_s"), 0);
}

// --- bubble --------------------------------------------------------------------------------------------------------

TEST(Comms, RanksOnOneHostNeedNoLinkBetweenHosts) {
  const std::string question = "plan comms --bytes 1GB --ranks 8 --link 1GB/s";
  const Json all = json_of(question), said = json_of(question + " --ranks-per-host 8");
  EXPECT_EQ(at(said, "all_reduce").dump(), at(all, "all_reduce").dump());
  EXPECT_EQ(at(said, "by_ranks").as_array().size(), 3U);  // 2, 4, 8: more would be on several hosts
}

TEST(Bubble, FourStages) {
  for (const auto& [microbatches, text] :
       {std::pair{1, "75.0 %"}, std::pair{4, "42.9 %"}, std::pair{16, "15.8 %"}, std::pair{64, "4.5 %"}}) {
    const std::string question = "plan bubble --stages 4 --microbatches " + std::to_string(microbatches);
    EXPECT_NEAR(number(json_of(question), "bubble_fraction"), 3.0 / (microbatches + 3), 1e-15);
    EXPECT_THAT(table_of(question), HasSubstr(text));
  }
}

TEST(Bubble, SameBubbleWithFewerActivations) {
  const std::string text = table_of("plan bubble --stages 4 --microbatches 16");
  EXPECT_THAT(text, HasSubstr("gpipe               15.8 %            16\n"));
  EXPECT_THAT(text, HasSubstr("1f1b                15.8 %             4\n"));
  EXPECT_THAT(text, HasSubstr("interleaved x2       8.6 %           5.5\n"));
  EXPECT_THAT(text, HasSubstr("zb-h1                5.9 %             4\n"));
}

plan::ScheduleKind kind_of(const Json& schedule) {
  return plan::parse_schedule(at(schedule, "schedule").as_string()).or_throw();
}

// The formulas against the schedules that the engine runs, in time and in what they hold.
TEST(Bubble, IsThatOfTheSchedulesThemselves) {
  for (const int stages : {1, 2, 3, 4, 8}) {
    for (const int microbatches : {1, 2, 3, 4, 8, 24}) {
      const Json result = json_of("plan bubble --interleave 3 --stages " + std::to_string(stages) + " --microbatches " +
                                  std::to_string(microbatches));
      for (const Json& entry : at(result, "schedules").as_array()) {
        const plan::ScheduleKind kind = kind_of(entry);
        const int chunks = kind == plan::ScheduleKind::kInterleaved ? 3 : 1;
        if (at(entry, "bubble_fraction").is_null()) {
          EXPECT_TRUE(chunks == 3 && microbatches % stages != 0);
          continue;
        }
        const std::vector<plan::ChunkTimes> times(stages * chunks, {1, 1, 1, 0, 0});
        const double span = plan::makespan(plan::timed_schedule(kind, stages, chunks, microbatches, times));
        EXPECT_NEAR(number(entry, "bubble_fraction"), 1 - 3.0 * chunks * microbatches / span, 1e-12)
            << stages << " stages, " << entry.dump();
        int most = 0;
        for (const plan::StageSchedule& stage : plan::make_schedule(kind, stages, chunks, microbatches)) {
          most = std::max(most, plan::peak_in_flight(stage));
        }
        EXPECT_DOUBLE_EQ(number(entry, "in_flight_microbatches"), static_cast<double>(most) / chunks)
            << stages << " stages, " << entry.dump();
      }
    }
  }
}

TEST(Bubble, InterleavedSaysWhatItNeeds) {
  EXPECT_THAT(table_of("plan bubble --stages 4 --microbatches 6"),
              HasSubstr("interleaved x2     needs micro-batches divisible by the 4 stages\n"));
}

TEST(Bubble, SweepOverMicrobatches) {
  const std::string text = table_of("plan bubble --stages 4");
  EXPECT_THAT(text, HasSubstr("            1        75.0 %               -    66.7 %          1     1"));
  EXPECT_THAT(text, HasSubstr("           64         4.5 %           2.3 %     1.5 %         64     4"));
  EXPECT_EQ(at(json_of("plan bubble --stages 4"), "sweep").as_array().size(), 9U);
}

// --- layout --------------------------------------------------------------------------------------------------------

TEST(Layout, TheDataDegreeMayBeSaid) {
  const std::string question = "plan layout --world 256 --ranks-per-host 8 --tp 8 --pp 4";
  EXPECT_EQ(json_of(question + " --dp 8").dump(), json_of(question).dump());
  const Json legal = json_of("plan layout --world 16 --ranks-per-host 8 --dp 2");
  for (const Json& layout : at(legal, "legal").as_array()) EXPECT_EQ(number(layout, "dp"), 2);
  EXPECT_EQ(at(legal, "legal").as_array().size(), 4U);
}

TEST(Layout, TwoHundredFiftySix) {
  const Json result = json_of("plan layout --world 256 --ranks-per-host 8 --tp 8 --pp 4");
  EXPECT_EQ(number(result, "dp"), 8);
  EXPECT_EQ(number(result, "tp"), 8);
  EXPECT_EQ(number(result, "pp"), 4);
  EXPECT_EQ(number(result, "world"), 256);
  EXPECT_EQ(number(result, "ranks_per_replica"), 32);
  const Json::Array& map = at(result, "map").as_array();
  ASSERT_EQ(map.size(), 256U);
  EXPECT_EQ(map[77].dump(), R"({"rank":77,"host":9,"tp":5,"pp":1,"dp":2})");
  const Json& groups = at(result, "groups");
  EXPECT_EQ(number(at(groups, "tensor"), "crossing_hosts"), 0);
  EXPECT_EQ(number(at(groups, "pipeline"), "crossing_hosts"), 64);
  EXPECT_EQ(number(at(groups, "data"), "crossing_hosts"), 32);
  EXPECT_EQ(at(at(at(groups, "pipeline"), "list").as_array()[1], "ranks").dump(), "[1,9,17,25]");
}

TEST(Layout, Table) {
  const std::string text = table_of("plan layout --world 256 --ranks-per-host 8 --tp 8 --pp 4");
  EXPECT_THAT(text, HasSubstr("world 256 = dp 8 x pp 4 x tp 8, order tp-pp-dp, 32 hosts of 8 ranks\n"
                              "a replica of the model is 32 ranks (4 hosts)\n"));
  EXPECT_THAT(text, HasSubstr("data            32       8              8         all 32   0, 32, 64, ... 224\n"));
  EXPECT_THAT(text, HasSubstr("     5           40-47         0-7           1           1\n"));
  EXPECT_THAT(text, HasSubstr("... 24 more hosts"));
  const std::string all = table_of("plan layout --world 16 --ranks-per-host 4 --tp 2 --pp 2 --all");
  EXPECT_THAT(all, HasSubstr("      15       3       1       1       3\n"));
  EXPECT_THAT(all, HasSubstr("       3: 3 7 11 15   (4 hosts)\n"));
  EXPECT_THAT(all, Not(HasSubstr("more hosts")));
}

TEST(Layout, OrderOfTheAxes) {
  const Json result = json_of("plan layout --world 16 --ranks-per-host 4 --tp 2 --pp 2 --order tp-dp-pp");
  EXPECT_EQ(at(result, "map").as_array()[2].dump(), R"({"rank":2,"host":0,"tp":0,"pp":0,"dp":1})");
}

TEST(Layout, SlowTensorParallelismOnlyWhenAllowed) {
  const Json result = json_of("plan layout --world 256 --ranks-per-host 8 --tp 16 --pp 4 --allow-slow-tp");
  EXPECT_EQ(number(result, "dp"), 4);
  EXPECT_EQ(number(at(at(result, "groups"), "tensor"), "crossing_hosts"), 16);
}

TEST(Layout, ListsWhatIsLegalAndNeverGuesses) {
  const std::string text = table_of("plan layout --world 256 --ranks-per-host 8 --tp 8");
  EXPECT_THAT(text, HasSubstr("256 ranks on 32 hosts of 8: 6 legal layouts with tp 8\n"));
  EXPECT_THAT(text, HasSubstr("       8       4       8                32                 4\n"));
  const Json all = json_of("plan layout --world 16 --ranks-per-host 4");
  EXPECT_EQ(at(all, "legal").as_array().size(), 12U);  // tp 1: 5 pp, 2: 4, 4: 3
  EXPECT_EQ(all.find("map"), nullptr);
}

// --- checkpoint ----------------------------------------------------------------------------------------------------

TEST(Checkpoint, ThreeMinutesAndFiftyHours) {
  const std::string question =
      "plan checkpoint --cost 3min --mtbf 50h --interval 15min,60min,240min,480min --step 5min";
  const Json result = json_of(question);
  const Json::Array& intervals = at(result, "intervals").as_array();
  ASSERT_EQ(intervals.size(), 4U);
  const double expected[] = {0.2025, 0.06, 0.0525, 0.08625};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(number(intervals[i], "waste_fraction"), expected[i], 1e-12);
    EXPECT_EQ(number(intervals[i], "waste_fraction"),
              number(intervals[i], "checkpoint_fraction") + number(intervals[i], "lost_fraction"));
  }
  EXPECT_EQ(number(intervals[2], "interval_s"), 14400);
  EXPECT_NEAR(number(result, "young_s") / 60, 134.2, 0.05);
  EXPECT_EQ(number(result, "swept_s"), 135 * 60);
  EXPECT_NEAR(number(result, "swept_waste_fraction"), 0.0447, 0.00005);
  const std::string text = table_of(question);
  EXPECT_THAT(text, HasSubstr("8.00 h     0.625 %      8.000 %     8.625 %"));
  EXPECT_THAT(text, HasSubstr("Young        134.2 min"));
  EXPECT_THAT(text, HasSubstr("swept        135.0 min     2.222 %      2.250 %     4.472 %"));
}

TEST(Checkpoint, TheTableHasIntervalsThatPeopleUse) {
  const std::string text = table_of("plan checkpoint --cost 3m --mtbf 50h");
  for (const char* row :
       {"15.0 min    20.000 %      0.250 %    20.250 %", "60.0 min     5.000 %      1.000 %     6.000 %",
        "4.00 h     1.250 %      4.000 %     5.250 %", "8.00 h     0.625 %      8.000 %     8.625 %"}) {
    EXPECT_THAT(text, HasSubstr(row));
  }
  EXPECT_THAT(text, HasSubstr("Young        134.2 min"));
}

TEST(Checkpoint, PublishedRow) {
  const Json result = json_of("plan checkpoint --cost 148.8s --mtbf 3h --restart 10min");
  EXPECT_NEAR(number(result, "young_s"), 1792.79, 0.005);
  EXPECT_NEAR(number(result, "daly_s"), 1694.96, 0.005);
  EXPECT_NEAR(number(result, "exact_s"), 1694.99, 0.005);
  EXPECT_NEAR(number(result, "goodput"), 0.79750, 0.000005);
}

TEST(Checkpoint, ChoosesIntervalsAroundTheBest) {
  for (const char* cost : {"1ns", "20us", "3s", "2min", "10h", "1000y", "30000y"}) {
    const Json result = json_of(std::string("plan checkpoint --mtbf 50h --cost ") + cost);
    const double young = number(result, "young_s");
    const Json::Array& intervals = at(result, "intervals").as_array();
    ASSERT_FALSE(intervals.empty());
    for (const Json& entry : intervals) {
      EXPECT_GE(number(entry, "interval_s"), young / 9.001) << cost;
      EXPECT_LE(number(entry, "interval_s"), young * 9.001) << cost;
    }
  }
}

TEST(Checkpoint, PlotOfTheCurve) {
  const std::string text = table_of("plan checkpoint --cost 3min --mtbf 50h --interval 15min,60min,4h,8h --plot");
  EXPECT_THAT(text, HasSubstr(R"(
waste
25 % ┤
     │─╮                                                               ╭
     │ ╰╮                                                             ╭╯
20 % ┤  ○╮                                                           ╭╯
)"));
  EXPECT_THAT(text, HasSubstr(R"(
     └──┬────────┬─────────┬─────────┬─────────┬────────┬─────────┬─────
      15min    30min      1h        2h        4h       8h        16h
                                       interval between saves, log scale
      ○ the intervals of the table
      ◆ Young 134.2 min, Daly 132.2 min, exact 132.2 min
)"));
}

// --- fleet ---------------------------------------------------------------------------------------------------------

TEST(Fleet, FourThousandDevices) {
  const std::string question = "plan fleet --devices 4000 --device-mtbf 3y --duration 3w";
  const Json result = json_of(question);
  EXPECT_NEAR(number(result, "job_mtbf_s") / 3600, 6.57, 0.005);
  EXPECT_NEAR(number(result, "failures"), 77, 0.5);
  EXPECT_EQ(result.find("goodput"), nullptr);
  const std::string text = table_of(question);
  EXPECT_THAT(text, HasSubstr("a failure of the job every        6.57 h\n"));
  EXPECT_THAT(text, HasSubstr("failures in 21.0 d                77\n"));
  EXPECT_THAT(text, Not(HasSubstr("goodput")));
}

TEST(Fleet, WithSaves) {
  const std::string question = "plan fleet --devices 4000 --device-mtbf 3y --duration 3w --cost 3min --restart 10min";
  const Json result = json_of(question);
  EXPECT_NEAR(number(result, "goodput"), 0.8596, 0.00005);
  EXPECT_NEAR(number(result, "wall_s") * number(result, "goodput"), 21 * 86400, 1e-3);
  EXPECT_THAT(table_of(question), HasSubstr("best interval between saves       46.7 min\n"));
}

TEST(Fleet, ThatNeverGetsAheadSaysSo) {
  const std::string question = "plan fleet --devices 1B --device-mtbf 1d --duration 3w --cost 3h";
  EXPECT_THAT(table_of(question), HasSubstr("without end"));
  EXPECT_TRUE(at(json_of(question), "wall_s").is_null());
}

}  // namespace
}  // namespace trireme
