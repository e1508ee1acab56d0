#include "plan/test_random_layouts.h"

#include "base/random.h"
#include "model/test_configs.h"

namespace trireme::plan {
namespace {

class Dice {
 public:
  explicit Dice(RandomKey key) : key_(key) {}
  int upto(int most) { return 1 + static_cast<int>(random_bits(key_, next_++) % static_cast<std::uint32_t>(most)); }
  template <class T>
  T one_of(std::initializer_list<T> values) {
    return *(values.begin() + (upto(static_cast<int>(values.size())) - 1));
  }

 private:
  RandomKey key_;
  std::uint64_t next_ = 0;
};

model::Config random_config(Dice& dice) {
  model::Config c;
  c.layers = dice.upto(11);
  c.kv_heads = dice.one_of({1, 2, 4, 8});
  c.heads = c.kv_heads * dice.one_of({1, 2, 4});
  c.head_dim = dice.one_of({2, 4});
  c.hidden = c.heads * c.head_dim;
  c.ffn = 8 * dice.upto(6);
  c.vocabulary = 20 + dice.upto(40);
  c.max_positions = 32;
  c.tied_embeddings = dice.upto(2) == 1;
  if (dice.upto(2) == 1) {
    c.family = model::Family::kGpt2;
    c.kv_heads = c.heads;
    c.norm = model::NormKind::kLayerNorm;
    c.activation = model::Activation::kGeluTanh;
    c.gated_mlp = false;
    c.attention_input_bias = c.attention_output_bias = c.mlp_bias = true;
    c.position = model::PositionKind::kLearned;
    c.residual_dropout = dice.one_of({0.0, 0.1});
    return c;
  }
  return model::as_family(c, model::kRotaryFamilies[dice.upto(7) - 1]);
}

RandomLayout random_layout(Dice& dice) {
  RandomLayout r{.config = random_config(dice), .layout = {}, .batch = {}};
  r.layout.tp = dice.one_of({1, 2, 4, 8});
  r.layout.pp = dice.upto(5);
  r.layout.dp = dice.upto(5);
  r.layout.schedule = dice.one_of(
      {ScheduleKind::kGpipe, ScheduleKind::kOneFOneB, ScheduleKind::kInterleaved, ScheduleKind::kZeroBubbleH1});
  if (r.layout.schedule == ScheduleKind::kInterleaved) r.layout.interleave = dice.upto(3);
  r.layout.zero = dice.upto(4) - 1;
  r.layout.reduce = dice.one_of({ReduceWhen::kStep, ReduceWhen::kMicrobatch});
  r.layout.recompute = dice.one_of({model::Recompute::kNone, model::Recompute::kSelective, model::Recompute::kFull});
  r.layout.order = dice.one_of({AxisOrder::kTpPpDp, AxisOrder::kTpDpPp});
  r.layout.sequence_parallel = dice.upto(2) == 1;
  r.layout.prefetch = dice.upto(3);
  if (dice.upto(3) == 1 && r.layout.chunks() <= r.config.layers) {  // stages as a user may cut them
    r.layout.chunk_layers.assign(static_cast<std::size_t>(r.layout.chunks()), 1);
    for (std::int64_t rest = r.config.layers - r.layout.chunks(); rest > 0; --rest) {
      ++r.layout.chunk_layers[static_cast<std::size_t>(dice.upto(r.layout.chunks()) - 1)];
    }
  }
  r.batch.micro_batch = dice.upto(3);
  r.batch.sequence = 8 * dice.upto(4);
  r.batch.global_batch = r.batch.micro_batch * r.layout.dp * dice.upto(9);
  if (r.layout.reduce == ReduceWhen::kStep) r.layout.bucket = dice.one_of({0, 5000, 100'000});
  if (r.layout.dp > 1) {
    using enum ReduceAlgorithm;
    const bool whole = r.layout.zero == 0 && r.layout.reduce == ReduceWhen::kStep;
    r.layout.all_reduce = whole ? dice.one_of({kOrdered, kRing, kRecursiveDoubling, kHierarchical, kLibrary})
                                : dice.one_of({kOrdered, kRing});
  }
  return r;
}

}  // namespace

std::vector<RandomLayout> random_layouts(int count, std::uint64_t seed) {
  std::vector<RandomLayout> all;
  for (std::uint64_t i = 0; all.size() < static_cast<std::size_t>(count); ++i) {
    Dice dice(RandomKey{seed, i});
    RandomLayout r = random_layout(dice);
    if (r.layout.world() <= 64 && check_layout(r.config, r.layout, r.batch).ok()) all.push_back(std::move(r));
  }
  return all;
}

}  // namespace trireme::plan
