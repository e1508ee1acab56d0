// Law 4's heart: whatever layout wrote a checkpoint, any other reads back the same bits of weights and moments.

#include <bit>

#include <gtest/gtest.h>

#include "base/fake_env.h"
#include "base/random.h"
#include "checkpoint/reader.h"
#include "checkpoint/store.h"
#include "engine/train/load_state.h"
#include "engine/train/rank_saver.h"
#include "engine/train/state_view.h"
#include "plan/test_random_layouts.h"

namespace trireme::train {
namespace {

constexpr const char* kDirectory = "run/checkpoints";

// A number of its own for every element of the training state.
float value_of(plan::StateKind kind, int parameter, std::int64_t row, std::int64_t column) {
  const auto key = RandomKey{static_cast<std::uint64_t>(kind), static_cast<std::uint64_t>(parameter)};
  const std::uint32_t bits = random_bits(key, static_cast<std::uint64_t>(row * 65536 + column));
  return std::bit_cast<float>(0x3f800000U | (bits & 0x807fffffU));
}

// The state of one rank, without anybody to talk to.
class LoneRank {
 public:
  LoneRank(Env& env, Log& log, const plan::RandomLayout& r, int rank, plan::CheckpointStaging staging)
      : plan_(parallel::make_run_plan(r.config, r.layout, r.batch, {.checkpoints = staging}, rank)),
        device_(kernels::make_cpu_device(1)),
        arena_(*device_, {.poison = true}),
        self_(comm::make_self_communicator("alone", 0)),
        context_{.env = env,
                 .log = log,
                 .device = *device_,
                 .arena = arena_,
                 .tensor = *self_,
                 .pipeline = *self_,
                 .data = *self_,
                 .kv_replicas = *self_},
        state_(context_, plan_) {}

  // Calls visit(value in memory, kind, parameter, row, column) for every element that the rank holds.
  template <class Visit>
  void for_each(const Visit& visit) {
    for (plan::StateKind kind : plan::kStateKinds) {
      for (const plan::LocalBox& box : plan::read_boxes(plan_.table, plan_.layout, plan_.rank, kind)) {
        for (std::int64_t row = box.box.rows.begin; row < box.box.rows.end; ++row) {
          const std::int64_t begin = box.offset + (row - box.box.rows.begin) * box.stride;
          const kernels::TensorView view =
              state_view(state_, kind, box.shard_unit, {begin, begin + box.box.columns.length()});
          auto* values = reinterpret_cast<float*>(view.data);
          for (std::int64_t column = box.box.columns.begin; column < box.box.columns.end; ++column) {
            visit(values[column - box.box.columns.begin], kind, box.parameter, row, column);
          }
        }
      }
    }
  }

  const parallel::RunPlan& plan() const { return plan_; }
  kernels::Device& device() { return *device_; }
  parallel::RankState& state() { return state_; }

 private:
  parallel::RunPlan plan_;
  std::unique_ptr<kernels::Device> device_;
  kernels::Arena arena_;
  std::unique_ptr<comm::Communicator> self_;
  nn::RankContext context_;
  parallel::RankState state_;
};

void save(FakeEnv& env, const plan::RandomLayout& r, std::int64_t step, plan::CheckpointStaging staging) {
  MemoryLog log;
  checkpoint::Store store(env, kDirectory);
  env.make_directories(kDirectory);
  store.begin(step);
  checkpoint::Manifest manifest;
  manifest.progress.step = step;
  manifest.tensors = checkpoint::states_of(model::make_parameter_table(r.config));
  std::vector<std::vector<checkpoint::ShardSlice>> slices;
  std::vector<checkpoint::ShardRecord> records;
  for (int rank = 0; rank < r.layout.world(); ++rank) {
    LoneRank lone(env, log, r, rank, staging);
    lone.for_each([](float& value, auto... where) { value = value_of(where...); });
    RankSaver saver(env, lone.device(), lone.plan());
    saver.begin(lone.state(), join_path(store.partial_path_of(step), checkpoint::shard_name(rank)));
    while (!saver.outcome()) env.sleep(Seconds{0.001});
    ASSERT_EQ(saver.outcome()->error, "");
    slices.push_back(checkpoint::slices_of_rank(lone.plan().table, r.layout, rank));
    records.push_back(checkpoint::shard_record_from_text(saver.outcome()->record));
  }
  checkpoint::add_shards(manifest, slices, records);
  store.commit(step, manifest);
}

// Bytes that the ranks need, and bytes read for them.
LoadedBytes expect_loaded(FakeEnv& env, const plan::RandomLayout& r, std::int64_t step) {
  MemoryLog log;
  const checkpoint::Reader reader =
      checkpoint::Reader::open(env, checkpoint::Store(env, kDirectory).path_of(step)).or_throw();
  LoadedBytes sum;
  for (int rank = 0; rank < r.layout.world(); ++rank) {
    LoneRank lone(env, log, r, rank, plan::CheckpointStaging::kTile);
    const LoadedBytes bytes = load_state(reader, lone.device(), lone.plan(), lone.state());
    std::int64_t elements = 0, wrong = 0;
    lone.for_each([&](float value, auto... where) {
      ++elements;
      wrong += std::bit_cast<std::uint32_t>(value) != std::bit_cast<std::uint32_t>(value_of(where...));
    });
    EXPECT_EQ(wrong, 0) << plan::describe(r.layout) << ", rank " << rank;
    EXPECT_EQ(bytes.needed.count, 4 * elements);
    EXPECT_GE(bytes.read, bytes.needed);
    sum.needed += bytes.needed;
    sum.read += bytes.read;
  }
  return sum;
}

TEST(AnyLayout, ReadsBackTheBitsThatAnyOtherWrote) {
  constexpr int kModels = 24, kReaders = 4;
  const std::vector<plan::RandomLayout> layouts = plan::random_layouts(600, 31);
  int pairs = 0;
  for (int i = 0; i < kModels; ++i) {
    FakeEnv env;
    const plan::RandomLayout& writer = layouts[static_cast<std::size_t>(i)];
    save(env, writer, i, i % 2 == 0 ? plan::CheckpointStaging::kSnapshot : plan::CheckpointStaging::kTile);
    int readers = 0;
    for (const plan::RandomLayout& other : layouts) {
      const plan::RandomLayout reader{writer.config, other.layout, other.batch};
      if (reader.layout == writer.layout || !plan::check_layout(reader.config, reader.layout, reader.batch)) continue;
      expect_loaded(env, reader, i);
      ++pairs;
      if (++readers == kReaders) break;
    }
  }
  EXPECT_GE(pairs, 80);
}

// What a rank reads beside its need is a border of tiles, however the tensors were cut.
TEST(AnyLayout, ReadsLittleMoreThanItNeeds) {
  plan::RandomLayout r = plan::random_layouts(1, 1).front();
  r.config.family = model::Family::kLlama;
  r.config.position = model::PositionKind::kRotary;
  r.config.norm = model::NormKind::kRmsNorm;
  r.config.gated_mlp = true;
  r.config.vocabulary = 1100;
  r.config.hidden = 1536;
  r.config.heads = r.config.kv_heads = 12;
  r.config.head_dim = 128;
  r.config.ffn = 2048;
  r.config.layers = 1;
  r.batch = {.global_batch = 12, .micro_batch = 1, .sequence = 8};
  FakeEnv env;
  r.layout = {.dp = 2, .zero = 1};
  save(env, r, 1, plan::CheckpointStaging::kSnapshot);
  r.layout = {.tp = 2};
  const LoadedBytes bytes = expect_loaded(env, r, 1);
  EXPECT_LT(static_cast<double>(bytes.read.count), 1.5 * static_cast<double>(bytes.needed.count));
}

}  // namespace
}  // namespace trireme::train
