#include "plan/staging.h"

#include <gtest/gtest.h>

#include "model/test_configs.h"
#include "plan/test_random_layouts.h"

namespace trireme::plan {
namespace {

constexpr std::int64_t kWords = 69;  // of an exact sum

Batch batch_of(const Layout& layout) { return {.global_batch = 2 * layout.dp, .micro_batch = 1, .sequence = 16}; }

RankStaging of(const Layout& layout, Backend backend, bool evaluates = false) {
  const model::ParameterTable table = model::make_parameter_table(model::small_llama());
  const RunInputs inputs{.evaluation_micro_batches = evaluates ? 1 : 0, .backend = backend};
  const RankStaging staging = staging_of(table, layout, batch_of(layout), inputs, 0);
  const Ledger ledger = predict_memory(table, layout, batch_of(layout), inputs, 0);
  EXPECT_GE(ledger.peak(MemoryClass::kCommunicationBuffers), staging.sum());
  if (layout.pp == 1) {
    EXPECT_EQ(ledger.peak(MemoryClass::kCommunicationBuffers), staging.sum());
  }
  return staging;
}

std::int64_t largest_bucket(const Layout& layout) {
  const model::ParameterTable table = model::make_parameter_table(model::small_llama());
  std::int64_t most = 0;
  for (const Bucket& bucket : make_program(table, layout, batch_of(layout), 0).buckets) {
    most = std::max(most, bucket.elements);
  }
  return most;
}

TEST(Staging, ThreadsNeedNoneForTheOrderedAlgorithm) {
  for (const Layout& layout : {Layout{}, {.dp = 3}, {.tp = 2}, {.pp = 2, .dp = 2}}) {
    EXPECT_EQ(of(layout, Backend::kThreads, true).sum().count, 0);
  }
  EXPECT_EQ(of({}, Backend::kMessages, true).sum().count, 0);
}

TEST(Staging, MessagesNeedThatOfTheLargestReductionOfEachGroup) {
  const Layout data{.dp = 3};
  const RankStaging staging = of(data, Backend::kMessages);
  EXPECT_EQ(staging.of(CommunicationGroup::kData).backend, message_staging_bytes(largest_bucket(data), 4, 3, {}));
  EXPECT_EQ(staging.sum(), staging.of(CommunicationGroup::kData).sum());
  EXPECT_EQ(staging.of(CommunicationGroup::kData).algorithm.count, 0);
  // Pipelines reduce scalars alone; a bucket of everything is larger than one of a unit.
  EXPECT_EQ(of({.pp = 2}, Backend::kMessages).of(CommunicationGroup::kPipeline).backend,
            message_staging_bytes(kWords, 8, 2, {}));
  EXPECT_GT(of({.dp = 3, .bucket = 1 << 24}, Backend::kMessages).sum(), staging.sum());
  // Tensor ranks: the hidden states of a micro-batch, 16 x 16.
  const RankStaging tensor = of({.tp = 2}, Backend::kMessages, true);
  EXPECT_EQ(tensor.of(CommunicationGroup::kTensor).backend, message_staging_bytes(16 * 16, 4, 2, {}));
}

// The words of the loss go the way of the gradients, so that the backend reduces nothing.
TEST(Staging, AnAlgorithmStagesOnEachBackendAlike) {
  for (const ReduceAlgorithm algorithm :
       {ReduceAlgorithm::kRing, ReduceAlgorithm::kRecursiveDoubling, ReduceAlgorithm::kHierarchical}) {
    const Layout layout{.dp = 3, .all_reduce = algorithm};
    const Bytes expected =
        allocation_size(staging_bytes(algorithm, CollectiveKind::kAllReduce, largest_bucket(layout), 4, 3, {}));
    EXPECT_GT(expected.count, 0);
    for (const Backend backend : {Backend::kThreads, Backend::kMessages}) {
      const RankStaging staging = of(layout, backend);
      EXPECT_EQ(staging.of(CommunicationGroup::kData).algorithm, expected);
      EXPECT_EQ(staging.sum(), expected);
    }
  }
  EXPECT_EQ(of({.dp = 3, .all_reduce = ReduceAlgorithm::kLibrary}, Backend::kMessages).sum().count, 0);
  // ZeRO's scalars and shards: the ring does both.
  const Layout sharded{.dp = 3, .zero = 1, .all_reduce = ReduceAlgorithm::kRing};
  EXPECT_EQ(of(sharded, Backend::kMessages).of(CommunicationGroup::kData).backend.count, 0);
}

TEST(Staging, OfRandomLayoutsIsAligned) {
  for (const RandomLayout& r : random_layouts(40, 17)) {
    const model::ParameterTable table = model::make_parameter_table(r.config);
    const RankStaging staging =
        staging_of(table, r.layout, r.batch, {.backend = Backend::kMessages}, r.layout.world() - 1);
    for (const GroupStaging& group : staging.groups) {
      EXPECT_EQ(group.algorithm.count % kAllocationAlignment, 0);
      EXPECT_EQ(group.backend.count % kAllocationAlignment, 0);
    }
    if (r.layout.world() > 1 && r.layout.all_reduce == ReduceAlgorithm::kOrdered) {
      EXPECT_GT(staging.sum().count, 0);
    }
  }
}

}  // namespace
}  // namespace trireme::plan
