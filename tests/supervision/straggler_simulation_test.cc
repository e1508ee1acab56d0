// Stragglers in simulated time: many runs with the noise of real ones, in which a rank becomes slow, or none does.
//
// TRIREME_STRAGGLER_RUNS: how many runs of each kind, 200 unless it is set.

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "supervisor/straggler.h"

namespace trireme::supervisor {
namespace {

std::uint64_t runs() {
  const char* given = std::getenv("TRIREME_STRAGGLER_RUNS");
  return given != nullptr ? static_cast<std::uint64_t>(std::max(1LL, std::atoll(given))) : 200;
}

// Uniform and normal numbers of one run, fast: 10^8 of them are drawn.
class Draws {
 public:
  explicit Draws(std::uint64_t seed) : state_(stream_of("straggler", seed)) {}
  double uniform() { return static_cast<double>(next() >> 11U) * 0x1p-53; }
  int within(int least, int most) { return least + static_cast<int>(uniform() * (most - least + 1)); }
  // A sum of 8 uniform numbers: its tails are those of a normal one as far as a margin of 1.2 is from here (3.6
  // standard deviations), and spikes make longer ones.
  double normal() {
    double sum = -4;
    for (int i = 0; i < 8; ++i) sum += uniform();
    return sum * std::sqrt(1.5);
  }

 private:
  std::uint64_t next() {  // splitmix64 (Steele, Lea, Flood 2014)
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15U;
    z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31U);
  }
  std::uint64_t state_;
};

// 2 to 64 ranks in 1 to 8 stages of one size. A step of a rank takes its stage's time, times jitter of 3 to 5 % of the
// rank, times noise of up to 5 % of all, times a drift of all by up to a half, slow; one step in a hundred takes a rank
// up to three times as long.
class Cluster {
 public:
  explicit Cluster(std::uint64_t seed) : draws_(seed) {
    const int stages = draws_.within(1, 8);
    const int ranks_a_stage = draws_.within(stages == 1 ? 2 : 1, 64 / stages);
    for (int rank = 0; rank < stages * ranks_a_stage; ++rank) stage_of_.push_back(rank / ranks_a_stage);
    for (int stage = 0; stage < stages; ++stage) stage_s_.push_back(0.5 + draws_.uniform());
    jitter_ = 0.03 + 0.02 * draws_.uniform();
    common_ = 0.05 * draws_.uniform();
    period_ = 200 + 2000 * draws_.uniform();
  }

  const std::vector<int>& stage_of() const { return stage_of_; }
  int ranks() const { return static_cast<int>(stage_of_.size()); }
  Draws& draws() { return draws_; }
  // slow: takes `factor` times as long.
  const std::vector<double>& step(std::int64_t step, std::optional<int> slow = std::nullopt, double factor = 1.3) {
    const double drift = 1.25 + 0.25 * std::sin(static_cast<double>(step) / period_);
    const double all = drift * (1 + common_ * draws_.normal() / 4);
    times_.resize(stage_of_.size());
    for (std::size_t rank = 0; rank < stage_of_.size(); ++rank) {
      double time = stage_s_[static_cast<std::size_t>(stage_of_[rank])] * all * std::exp(jitter_ * draws_.normal());
      if (draws_.uniform() < 0.01) time *= 1 + 2 * draws_.uniform();
      if (slow && *slow == static_cast<int>(rank)) time *= factor;
      times_[rank] = time;
    }
    return times_;
  }

 private:
  Draws draws_;
  std::vector<int> stage_of_;
  std::vector<double> stage_s_;
  double jitter_ = 0;
  double common_ = 0;
  double period_ = 1;
  std::vector<double> times_;
};

// A step is as long as its slowest rank.
std::vector<Straggler> add_step(StragglerDetector& detector, std::int64_t step, const std::vector<double>& times) {
  return detector.add_step(step, times, {*std::ranges::max_element(times)});
}

TEST(StragglerSimulation, ASlowRankIsNamedWithinTwentyStepsAndNobodyElse) {
  std::int64_t slowest = 0;
  std::int64_t sum = 0;
  double factors = 0;
  for (std::uint64_t seed = 0; seed < runs(); ++seed) {
    Cluster cluster(seed);
    StragglerDetector detector({}, cluster.stage_of());
    const int slow = cluster.draws().within(0, cluster.ranks() - 1);
    const std::int64_t begin = cluster.draws().within(50, 400);
    std::optional<std::int64_t> named;
    for (std::int64_t step = 1; step < begin + 200; ++step) {
      const bool is_slow = step >= begin;
      for (const Straggler& found :
           add_step(detector, step, cluster.step(step, is_slow ? std::optional(slow) : std::nullopt))) {
        ASSERT_TRUE(is_slow && !named && found.rank == slow) << "seed " << seed << ": rank " << found.rank;
        named = step;
        factors += found.factor;
        EXPECT_NEAR(found.factor, 1.3, 0.13) << "seed " << seed;
      }
    }
    ASSERT_TRUE(named) << "seed " << seed;
    EXPECT_LE(*named - begin + 1, 20) << "seed " << seed;
    EXPECT_TRUE(detector.is_slow(slow)) << "seed " << seed;
    slowest = std::max(slowest, *named - begin + 1);
    sum += *named - begin + 1;
  }
  const auto count = static_cast<double>(runs());
  fmt::print("named after {:.1f} steps in the mean, {} at most; factor {:.3f} in the mean, of {} runs\n",
             static_cast<double>(sum) / count, slowest, factors / count, runs());
}

TEST(StragglerSimulation, NoiseNamesNobody) {
  std::int64_t rank_steps = 0;
  for (std::uint64_t seed = 0; seed < runs(); ++seed) {
    Cluster cluster(1'000'000 + seed);
    StragglerDetector detector({}, cluster.stage_of());
    for (std::int64_t step = 1; step <= 10'000; ++step) {
      for (const Straggler& found : add_step(detector, step, cluster.step(step))) {
        ADD_FAILURE() << "seed " << seed << ", step " << step << ": rank " << found.rank << " of " << cluster.ranks();
      }
    }
    rank_steps += 10'000 * cluster.ranks();
  }
  fmt::print("{} runs of 10,000 steps, {} steps of a rank: nobody named\n", runs(), rank_steps);
}

// What a machine that is shared does to runs of short steps: every 10 to 30 seconds other work takes half or more of a
// rank's core for up to 2 seconds.
TEST(StragglerSimulation, OtherWorkOfAMachineNamesNobody) {
  for (std::uint64_t seed = 0; seed < runs(); ++seed) {
    Cluster cluster(3'000'000 + seed);
    Draws& draws = cluster.draws();
    StragglerDetector detector({}, cluster.stage_of());
    const double scale = 0.02 + 0.18 * draws.uniform();
    double now = 0;
    double begin = 10;
    double end = begin + 2;
    int rank = 0;
    for (std::int64_t step = 1; step <= 10'000; ++step) {
      if (now > end) {
        begin = now + 10 + 20 * draws.uniform();
        end = begin + 2 * draws.uniform();
        rank = draws.within(0, cluster.ranks() - 1);
      }
      std::vector<double> times = cluster.step(step);
      for (double& time : times) time *= scale;
      if (now >= begin) times[static_cast<std::size_t>(rank)] *= 1.2 + 0.8 * draws.uniform();
      for (const Straggler& found : add_step(detector, step, times)) {
        ADD_FAILURE() << "seed " << seed << ", step " << step << ": rank " << found.rank << " of " << cluster.ranks();
      }
      now += *std::ranges::max_element(times);
    }
  }
}

// Slow for 100 steps, well for 100, and so on: named once each time, well again in between.
TEST(StragglerSimulation, AStragglerThatRecoversIsNamedOnceEachTime) {
  for (std::uint64_t seed = 0; seed < runs(); ++seed) {
    Cluster cluster(2'000'000 + seed);
    StragglerDetector detector({}, cluster.stage_of());
    const int slow = cluster.draws().within(0, cluster.ranks() - 1);
    int named = 0;
    for (std::int64_t step = 1; step <= 1000; ++step) {
      const bool is_slow = step / 100 % 2 == 1;
      for (const Straggler& found :
           add_step(detector, step, cluster.step(step, is_slow ? std::optional(slow) : std::nullopt, 1.5))) {
        EXPECT_EQ(found.rank, slow) << "seed " << seed;
        ++named;
      }
      if (step % 100 != 99) continue;
      EXPECT_EQ(detector.is_slow(slow), is_slow) << "seed " << seed << ", step " << step;
    }
    EXPECT_EQ(named, 5) << "seed " << seed;
  }
}

}  // namespace
}  // namespace trireme::supervisor
