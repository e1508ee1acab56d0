#include "engine/comm/segments.h"

#include <functional>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "engine/comm/reduce.h"
#include "engine/comm/test_ranks.h"

namespace trireme::comm {
namespace {

using Buffers = std::vector<std::vector<double>>;

Buffers buffers_of(int ranks, std::int64_t count) {
  Buffers buffers;
  for (int rank = 0; rank < ranks; ++rank) {
    const RandomKey key{5, static_cast<std::uint64_t>(rank)};
    auto& values = buffers.emplace_back(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = 1000 * random_normal(key, i);
  }
  return buffers;
}

// All segments, the last first.
Buffers worked_on(const Call& call, Buffers buffers) {
  std::vector<std::byte*> data;
  for (auto& buffer : buffers) data.push_back(bytes_of(buffer));
  for (std::int64_t number = segments_of(call, static_cast<int>(data.size())) - 1; number >= 0; --number) {
    work_on_segment(call, data, number);
  }
  return buffers;
}

struct Shape {
  int ranks;
  std::int64_t count;
  Buffers before;

  Call call(Operation operation) const { return {.operation = operation, .count = count, .dtype = DType::kF64}; }
};

void for_all_shapes(const std::function<void(const Shape&)>& check) {
  for (const int ranks : {1, 2, 3, 5}) {
    for (const std::int64_t count : {0, 1, 4, 8192, 8193, 70'001}) {
      SCOPED_TRACE(fmt::format("{} elements over {} ranks", count, ranks));
      check({ranks, count, buffers_of(ranks, count)});
    }
  }
}

TEST(Segments, Reductions) {
  for_all_shapes([](const Shape& shape) {
    std::vector<const std::byte*> sources;
    for (const auto& buffer : shape.before) sources.push_back(reinterpret_cast<const std::byte*>(buffer.data()));
    for (const Reduction reduction : {Reduction::kSum, Reduction::kMax}) {
      std::vector<double> expected(shape.before[0]);
      reduce_in_order(DType::kF64, reduction, sources, bytes_of(expected), {0, shape.count});
      Call all_reduce = shape.call(Operation::kAllReduce);
      all_reduce.reduction = reduction;
      EXPECT_EQ(worked_on(all_reduce, shape.before), Buffers(shape.before.size(), expected));
    }
    Buffers scattered = shape.before;
    for (int rank = 0; rank < shape.ranks; ++rank) {
      reduce_in_order(DType::kF64, Reduction::kSum, sources, bytes_of(scattered[static_cast<std::size_t>(rank)]),
                      share_of(shape.count, rank, shape.ranks));
    }
    EXPECT_EQ(worked_on(shape.call(Operation::kReduceScatter), shape.before), scattered);
  });
}

TEST(Segments, Copies) {
  for_all_shapes([](const Shape& shape) {
    std::vector<double> gathered;
    for (int rank = 0; rank < shape.ranks; ++rank) {
      const Share share = share_of(shape.count, rank, shape.ranks);
      const auto& values = shape.before[static_cast<std::size_t>(rank)];
      gathered.insert(gathered.end(), values.begin() + share.begin, values.begin() + share.end);
    }
    EXPECT_EQ(worked_on(shape.call(Operation::kAllGather), shape.before), Buffers(shape.before.size(), gathered));
    Call broadcast = shape.call(Operation::kBroadcast);
    broadcast.root = shape.ranks - 1;
    EXPECT_EQ(worked_on(broadcast, shape.before), Buffers(shape.before.size(), shape.before.back()));
    for (const Operation operation : {Operation::kSend, Operation::kReceive}) {
      EXPECT_EQ(worked_on(shape.call(operation), {shape.before[0], shape.before.back()}),
                (Buffers{shape.before[0], shape.before[0]}));
    }
  });
}

TEST(SegmentsOf, AreShortEnough) {
  constexpr std::int64_t kElements = kSegmentBytes / 4;
  const auto number = [](Operation operation, std::int64_t count, int size) {
    return segments_of({.operation = operation, .count = count}, size);
  };
  EXPECT_EQ(number(Operation::kAllReduce, 10 * kElements, 2), 10);
  EXPECT_EQ(number(Operation::kAllReduce, 10 * kElements + 1, 2), 11);
  EXPECT_EQ(number(Operation::kAllReduce, 10 * kElements, 1), 0);
  EXPECT_EQ(number(Operation::kAllReduce, 0, 2), 0);
  EXPECT_EQ(number(Operation::kBarrier, 0, 2), 0);
  EXPECT_EQ(number(Operation::kAllGather, 3 * kElements + 1, 3), 6);  // one share is longer
  EXPECT_EQ(number(Operation::kReduceScatter, 1, 3), 3);              // two are empty
}

}  // namespace
}  // namespace trireme::comm
