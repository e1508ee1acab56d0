// Loss, logits and every gradient against PyTorch: every family, golden values from make_golden.py.
// Metric (law 2): per tensor ||difference|| / ||gradient||, with a floor of 1e-6 of the global norm, since some
// gradients are zero in exact arithmetic (gpt2's key bias).

#include <cmath>

#include <gtest/gtest.h>

#include "base/fake_env.h"
#include "checkpoint/safetensors.h"
#include "engine/parallel/rank.h"
#include "engine/train/weights.h"

namespace trireme::testing {
namespace {

std::string golden_directory(const std::string& name) {
  return std::string(TRIREME_SOURCE_DIR) + "/tests/numerics/golden/" + name;
}

struct Golden {
  std::vector<std::int32_t> inputs, targets;
  std::vector<float> logits, loss;
};

std::vector<std::int32_t> read_ints(const checkpoint::SafetensorsReader& file, const std::string& name) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(file.find(name)->elements()));
  file.read_raw(name, 0, std::as_writable_bytes(std::span(ids)));
  return ids;
}

std::vector<float> read_floats(const checkpoint::SafetensorsReader& file, const std::string& name) {
  const checkpoint::StoredTensor* stored = file.find(name);
  TRIREME_CHECK(stored != nullptr, "no golden value {}", name);
  std::vector<float> values(static_cast<std::size_t>(stored->elements()));
  file.read_all(name, values);
  return values;
}

struct DeviceCase {
  const char* name;
  DType compute;
  double gradient_bound;
  double logit_bound;
  friend void PrintTo(const DeviceCase& c, std::ostream* out) { *out << c.name; }
};

class GoldenValues : public ::testing::TestWithParam<std::tuple<const char*, DeviceCase>> {
 protected:
  void SetUp() override {
    const auto& [name, device] = GetParam();
    const std::string directory = golden_directory(name);
    file_ = std::make_unique<checkpoint::SafetensorsReader>(
        checkpoint::SafetensorsReader::open(posix_env(), directory + "/golden.safetensors").or_throw());
    golden_.inputs = read_ints(*file_, "inputs");
    golden_.targets = read_ints(*file_, "targets");
    golden_.logits = read_floats(*file_, "logits");
    golden_.loss = read_floats(*file_, "loss");
    const auto sequences = file_->find("inputs")->shape[0];
    const auto sequence = file_->find("inputs")->shape[1];
    const model::Config config = model::load_config(posix_env(), directory).or_throw();
    auto make = device.compute == DType::kF64 ? kernels::make_reference_device() : kernels::make_cpu_device(1);
    rank_ = std::make_unique<parallel::Rank>(
        posix_env(), log_, std::move(make),
        parallel::make_run_plan(config, {}, {.global_batch = sequences, .micro_batch = sequences, .sequence = sequence},
                                {.threads = 1, .compute = device.compute, .evaluation_micro_batches = 1}, 0),
        parallel::RankOptions{.poison = true});
    train::import_weights(posix_env(), rank_->device(), rank_->plan(), directory, rank_->executor().state());
  }

  std::vector<double> gradient(parallel::TensorRef ref) {
    const kernels::TensorView view = rank_->executor().state().gradient(ref, 0);
    std::vector<double> wide(static_cast<std::size_t>(view.elements()));
    if (view.dtype == DType::kF64) {
      rank_->device().copy_to_host(wide.data(), view.data, Bytes{view.elements() * 8});
      return wide;
    }
    std::vector<float> narrow(wide.size());
    rank_->device().copy_to_host(narrow.data(), view.data, Bytes{view.elements() * 4});
    return {narrow.begin(), narrow.end()};
  }

  MemoryLog log_;
  std::unique_ptr<checkpoint::SafetensorsReader> file_;
  Golden golden_;
  std::unique_ptr<parallel::Rank> rank_;
};

TEST_P(GoldenValues, Logits) {
  const DeviceCase& device = std::get<1>(GetParam());
  double worst = 0.0, largest = 0.0;
  for (float logit : golden_.logits) largest = std::max(largest, std::abs(static_cast<double>(logit)));
  rank_->executor().logits(golden_.inputs,
                           [&](std::int64_t row, std::int64_t columns, const std::vector<double>& block) {
                             for (std::size_t i = 0; i < block.size(); ++i) {
                               const auto at = static_cast<std::size_t>(row * columns) + i;
                               worst = std::max(worst, std::abs(block[i] - static_cast<double>(golden_.logits[at])));
                             }
                           });
  EXPECT_LE(worst / largest, device.logit_bound);
}

TEST_P(GoldenValues, LossAndEveryGradient) {
  const DeviceCase& device = std::get<1>(GetParam());
  const std::vector<std::uint64_t> samples(static_cast<std::size_t>(rank_->plan().batch.micro_batch), 0);
  rank_->executor().load_micro_batch(0, golden_.inputs, golden_.targets, samples);
  const parallel::StepResult result =
      rank_->executor().step({.step = 1, .learning_rate = 0.0, .optimizer = {.clip_norm = 0.0}});
  EXPECT_NEAR(result.loss, static_cast<double>(golden_.loss[0]), 2e-6 * result.loss);

  const parallel::RankState& state = rank_->executor().state();
  int compared = 0;
  for (int unit = 0; unit < state.shard_unit_count(); ++unit) {
    if (state.shard_unit(unit).tied_head) continue;
    for (int t = 0; t < static_cast<int>(state.shard_unit(unit).tensors.size()); ++t) {
      const auto index =
          static_cast<std::size_t>(state.shard_unit(unit).tensors[static_cast<std::size_t>(t)].parameter);
      const std::string& name = rank_->plan().table.parameters[index].name;
      const std::vector<float> expected = read_floats(*file_, "grad." + name);
      const std::vector<double> got = gradient({unit, t});
      ASSERT_EQ(got.size(), expected.size()) << name;
      double difference = 0.0, size = 0.0;
      for (std::size_t i = 0; i < got.size(); ++i) {
        const double e = static_cast<double>(expected[i]);
        difference += (got[i] - e) * (got[i] - e);
        size += e * e;
      }
      const double floor = 1e-6 * result.grad_norm;
      EXPECT_LE(std::sqrt(difference), device.gradient_bound * std::max(std::sqrt(size), floor) + floor) << name;
      ++compared;
    }
  }
  EXPECT_EQ(static_cast<std::size_t>(compared), rank_->plan().table.parameters.size());
}

INSTANTIATE_TEST_SUITE_P(Cases, GoldenValues,
                         ::testing::Combine(::testing::Values("gpt2", "gpt2_untied_relu", "llama_gqa_llama3_rope",
                                                              "llama_tied_head_dim", "llama_biases", "mistral_window",
                                                              "qwen2_windows", "qwen3", "gemma", "olmo2", "phi3"),
                                            ::testing::Values(DeviceCase{"float64", DType::kF64, 2e-6, 2e-6},
                                                              DeviceCase{"float32", DType::kF32, 2e-5, 2e-5})),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param)) + "_" + std::get<1>(test.param).name;
                         });

}  // namespace
}  // namespace trireme::testing
