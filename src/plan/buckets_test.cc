#include "plan/buckets.h"

#include <gtest/gtest.h>

#include "plan/program.h"
#include "plan/test_random_layouts.h"

namespace trireme::plan {
namespace {

std::vector<ShardUnit> units_of(std::initializer_list<std::int64_t> elements) {
  std::vector<ShardUnit> units;
  for (std::int64_t n : elements) {
    units.emplace_back();
    units.back().elements = n;
  }
  return units;
}

TEST(Buckets, CloseAsSoonAsTheyHoldWhatWasAsked) {
  const std::vector<ShardUnit> units = units_of({1000, 10, 10, 10, 500});
  Layout layout{.dp = 2};
  EXPECT_EQ(gradient_buckets(units, layout).size(), 5U);
  layout.bucket = 20;
  const std::vector<Bucket> buckets = gradient_buckets(units, layout);
  ASSERT_EQ(buckets.size(), 3U);
  EXPECT_EQ(buckets[0].first, 4);
  EXPECT_EQ(buckets[1].first, 2);
  EXPECT_EQ(buckets[1].end, 4);
  EXPECT_EQ(buckets[1].elements, 20);
  EXPECT_EQ(buckets[2].first, 0);  // what is left, and the large unit: never cut
  EXPECT_EQ(buckets[2].elements, 1010);
  layout.bucket = 1 << 24;
  EXPECT_EQ(gradient_buckets(units, layout).size(), 1U);
}

// Every gradient is in one bucket, and each bucket is reduced once its last unit is done.
TEST(Buckets, OfRandomLayoutsAreReducedOnceAndInTime) {
  for (RandomLayout r : random_layouts(60, 7)) {
    if (r.layout.reduce != ReduceWhen::kStep || r.layout.dp == 1) continue;
    const model::ParameterTable table = model::make_parameter_table(r.config);
    for (std::int64_t size : {std::int64_t{0}, std::int64_t{3000}, std::int64_t{1} << 40}) {
      r.layout.bucket = size;
      const RankProgram program = make_program(table, r.layout, r.batch, 0);
      std::vector<int> backwards(program.shard_units.size()), reduced(program.shard_units.size());
      for (const Instruction& i : program.instructions) {
        for (std::size_t s = 0; s < program.shard_units.size(); ++s) {
          const bool head = model::unit_kind(table.config, program.shard_units[s].unit) == model::UnitKind::kHead;
          if (i.op == (head ? Op::kBackwardInput : Op::kBackwardWeight) && i.unit == program.shard_units[s].unit) {
            EXPECT_EQ(reduced[s], 0) << describe(i) << " after its reduction";
            ++backwards[s];
          }
        }
        if (i.op != Op::kReduce) continue;
        const Bucket& bucket = program.buckets[static_cast<std::size_t>(i.bucket)];
        for (int s = bucket.first; s < bucket.end; ++s) {
          ++reduced[static_cast<std::size_t>(s)];
          EXPECT_EQ(backwards[static_cast<std::size_t>(s)], micro_batches(r.layout, r.batch));
        }
      }
      for (int times : reduced) EXPECT_EQ(times, 1);
    }
  }
}

}  // namespace
}  // namespace trireme::plan
