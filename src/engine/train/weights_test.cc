#include "engine/train/weights.h"

#include <gtest/gtest.h>

#include "base/fake_env.h"
#include "engine/parallel/rank.h"
#include "model/test_configs.h"

namespace trireme::train {
namespace {

model::Config config_of(model::Family family) {
  model::Config c = family == model::Family::kGpt2 ? model::small_gpt2() : model::small_llama();
  c.hidden = 16;
  c.heads = 4;
  c.kv_heads = family == model::Family::kGpt2 ? 4 : 2;
  c.head_dim = 4;
  c.ffn = 24;
  return c;
}

const plan::Batch kBatch{.global_batch = 1, .micro_batch = 1, .sequence = 8};

// The memory of one rank of any layout, without running it.
struct Rank {
  Rank(const model::Config& config, const plan::Layout& layout, int rank)
      : plan(parallel::make_run_plan(config, layout, kBatch, {.threads = 1}, rank)),
        context{.env = env,
                .log = log,
                .device = *device,
                .arena = arena,
                .tensor = *self,
                .pipeline = *self,
                .data = *self,
                .kv_replicas = *self},
        state(context, plan) {}

  std::vector<float> tensor(parallel::TensorRef ref) {
    const kernels::TensorView view = state.weight(ref);
    std::vector<float> values(static_cast<std::size_t>(view.elements()));
    device->copy_to_host(values.data(), view.data, Bytes{view.elements() * 4});
    return values;
  }

  FakeEnv env;
  MemoryLog log;
  std::unique_ptr<kernels::Device> device = kernels::make_reference_device();
  kernels::Arena arena{*device, {}};
  std::unique_ptr<comm::Communicator> self = comm::make_self_communicator("self", 0);
  parallel::RunPlan plan;
  nn::RankContext context;
  parallel::RankState state;
};

// The part of a whole tensor that a local tensor holds.
std::vector<float> slice(const model::Parameter& p, const plan::LocalTensor& local, const std::vector<float>& whole) {
  std::vector<float> part;
  plan::for_each_element(plan::cut_of(p, local.intervals), [&](std::int64_t row, std::int64_t column) {
    part.push_back(whole[static_cast<std::size_t>(row * p.columns() + column)]);
  });
  return part;
}

void expect_slices(Rank& whole, Rank& part) {
  for (int unit = 0; unit < part.state.shard_unit_count(); ++unit) {
    const plan::ShardUnit& shard = part.state.shard_unit(unit);
    if (!shard.holds_weights) continue;
    for (int t = 0; t < static_cast<int>(shard.tensors.size()); ++t) {
      const plan::LocalTensor& local = shard.tensors[static_cast<std::size_t>(t)];
      const model::Parameter& p = whole.plan.table.parameters[static_cast<std::size_t>(local.parameter)];
      EXPECT_EQ(part.tensor({unit, t}), slice(p, local, whole.tensor(whole.state.weight_ref(p.unit, p.role))))
          << p.name;
    }
  }
}

std::vector<plan::Layout> layouts() { return {{.tp = 2}, {.tp = 4}, {.pp = 2}, {.tp = 2, .pp = 2}}; }

TEST(Weights, AnySliceIsInitialisedToTheSameValues) {
  for (model::Family family : {model::Family::kGpt2, model::Family::kLlama}) {
    Rank whole(config_of(family), {}, 0);
    initialise_weights(*whole.device, whole.plan, 9, whole.state);
    for (const plan::Layout& layout : layouts()) {
      for (int rank = 0; rank < layout.world(); ++rank) {
        Rank part(config_of(family), layout, rank);
        initialise_weights(*part.device, part.plan, 9, part.state);
        expect_slices(whole, part);
      }
    }
  }
}

TEST(Weights, ExportedFilesComeBackOnAnyLayout) {
  for (model::Family family : {model::Family::kGpt2, model::Family::kLlama}) {
    Rank whole(config_of(family), {}, 0);
    initialise_weights(*whole.device, whole.plan, 3, whole.state);
    Control alone(0, 1, nullptr);
    export_model(whole.env, {whole.plan, *whole.device, whole.state}, alone, "out");
    EXPECT_EQ(model::load_config(whole.env, "out").value(), config_of(family));
    for (const plan::Layout& layout : layouts()) {
      for (int rank = 0; rank < layout.world(); ++rank) {
        Rank part(config_of(family), layout, rank);
        import_weights(whole.env, *part.device, part.plan, "out", part.state);
        expect_slices(whole, part);
      }
    }
  }
}

std::string import_error(Rank& into, Env& env, const std::string& path) {
  try {
    import_weights(env, *into.device, into.plan, path, into.state);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Weights, AnotherModelsFileIsRefusedByTensor) {
  Rank llama(config_of(model::Family::kLlama), {}, 0), gpt2(config_of(model::Family::kGpt2), {}, 0);
  initialise_weights(*llama.device, llama.plan, 3, llama.state);
  Control alone(0, 1, nullptr);
  export_model(llama.env, {llama.plan, *llama.device, llama.state}, alone, "out");
  EXPECT_NE(import_error(gpt2, llama.env, "out").find("is no tensor of this model"), std::string::npos);

  model::Config wider = config_of(model::Family::kLlama);
  wider.ffn = 32;
  Rank other(wider, {}, 0);
  EXPECT_NE(import_error(other, llama.env, "out").find("has shape [24, 16], the model needs [32, 16]"),
            std::string::npos);

  model::Config deeper = config_of(model::Family::kLlama);
  deeper.layers = 3;
  Rank third(deeper, {}, 0);
  EXPECT_NE(import_error(third, llama.env, "out").find("there is no tensor model.layers.2"), std::string::npos);
  EXPECT_NE(import_error(llama, llama.env, "nowhere"), "");
}

TEST(Weights, InitialisersAreWhatTheTableSays) {
  Rank rank(config_of(model::Family::kGpt2), {}, 0);
  initialise_weights(*rank.device, rank.plan, 5, rank.state);
  for (float one : rank.tensor(rank.state.weight_ref(1, model::Role::kNorm1Weight))) EXPECT_EQ(one, 1.0F);
  for (float zero : rank.tensor(rank.state.weight_ref(1, model::Role::kQkvBias))) EXPECT_EQ(zero, 0.0F);
  double squares = 0.0;
  const std::vector<float> normal = rank.tensor(rank.state.weight_ref(1, model::Role::kQkvWeight));
  for (float x : normal) squares += static_cast<double>(x) * static_cast<double>(x);
  EXPECT_NEAR(std::sqrt(squares / static_cast<double>(normal.size())), 0.02, 0.002);
}

}  // namespace
}  // namespace trireme::train
