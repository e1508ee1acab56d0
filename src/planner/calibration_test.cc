#include "planner/calibration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/fake_env.h"

namespace trireme::planner {
namespace {

using testing::HasSubstr;

Result<Calibration> read(const std::string& text, const Calibration& base = default_calibration()) {
  return parse_calibration(parse_toml(text, "mine.toml").or_throw(), "mine.toml", base);
}
Failure refusal(const std::string& text) {
  const Result<Calibration> calibration = read(text);
  EXPECT_FALSE(calibration) << text;
  return calibration ? Failure{} : calibration.failure();
}

TEST(Calibration, DefaultsHaveDevicesAndFrameworks) {
  const Calibration& calibration = default_calibration();
  for (const char* framework : {"trireme", "megatron", "fsdp", "nanotron"}) {
    EXPECT_TRUE(calibration.framework(framework)) << framework;
  }
  EXPECT_TRUE(calibration.devices.contains("default"));
  EXPECT_TRUE(calibration.devices.contains("H100-SXM-80GB"));
  const DeviceConstants& unknown = calibration.device("abacus");
  EXPECT_EQ(&unknown, &calibration.devices.at("default"));
  for (const auto& [name, device] : calibration.devices) {
    EXPECT_GT(device.gemm_efficiency, 0.2) << name;
    EXPECT_GT(device.kernel_launch.count, 0.0) << name;
  }
  EXPECT_EQ(calibration.framework("trireme")->activations, ActivationSet::kTrireme);
  EXPECT_EQ(calibration.framework("megatron")->activations, ActivationSet::kMegatron);
}

TEST(Calibration, UnknownFrameworkNamesTheKnown) {
  const Result<FrameworkConstants> none = default_calibration().framework("pencil");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.failure().option, "framework");
  EXPECT_EQ(none.failure().value, "pencil");
  EXPECT_THAT(none.failure().nearest, HasSubstr("megatron"));
}

TEST(Calibration, EveryKeyLiesOverTheBase) {
  const Calibration c = read(R"(
    [device.A100-SXM-80GB]
    gemm_efficiency = 0.5
    gemm_half_extent = 200
    attention_efficiency = 0.3
    memory_efficiency = 0.9
    kernel_launch = "7us"
    inside_efficiency = 0.6
    between_efficiency = 1

    [framework.mine]
    activations = "megatron"
    fused_attention = false
    fp32_gradients = true
    dropout = true
    activation_scale = 1.5
    logit_bytes = 8
    kernels_per_layer = 30
    context = "3GB"
    fragmentation = 0.1
    data_overlap = 0.2
    tensor_overlap = 0.3
    pipeline_overlap = 0.4
    step_overhead = 0.05
    vocabulary_multiple = 64
    scattered_sends = true
    resharded_after_forward = false
    reduce = "hierarchical"
  )")
                            .or_throw();
  const DeviceConstants& d = c.device("A100-SXM-80GB");
  EXPECT_EQ(d.gemm_efficiency, 0.5);
  EXPECT_EQ(d.gemm_half_extent, 200);
  EXPECT_EQ(d.attention_efficiency, 0.3);
  EXPECT_EQ(d.memory_efficiency, 0.9);
  EXPECT_DOUBLE_EQ(d.kernel_launch.count, 7e-6);
  EXPECT_EQ(d.inside_efficiency, 0.6);
  EXPECT_EQ(d.between_efficiency, 1.0);
  const FrameworkConstants f = c.framework("mine").or_throw();
  EXPECT_EQ(f.activations, ActivationSet::kMegatron);
  EXPECT_FALSE(f.fused_attention);
  EXPECT_TRUE(f.fp32_gradients);
  EXPECT_TRUE(f.dropout);
  EXPECT_EQ(f.activation_scale, 1.5);
  EXPECT_EQ(f.logit_bytes, 8);
  EXPECT_EQ(f.kernels_per_layer, 30);
  EXPECT_EQ(f.context.count, 3'000'000'000);
  EXPECT_EQ(f.fragmentation, 0.1);
  EXPECT_EQ(f.data_overlap, 0.2);
  EXPECT_EQ(f.tensor_overlap, 0.3);
  EXPECT_EQ(f.pipeline_overlap, 0.4);
  EXPECT_EQ(f.step_overhead, 0.05);
  EXPECT_EQ(f.vocabulary_multiple, 64);
  EXPECT_TRUE(f.scattered_sends);
  EXPECT_FALSE(f.resharded_after_forward);
  EXPECT_EQ(f.reduce, CollectiveAlgorithm::kHierarchical);
}

TEST(Calibration, LeftOutKeysKeepTheirValues) {
  const Calibration& base = default_calibration();
  const Calibration c = read(
                            "[device.H100-SXM-80GB]\nmemory_efficiency = 0.5\n[framework.megatron]\ndropout = false\n"
                            "[device.new]\n[framework.new]\n[framework.other]\ndata_overlap = 0.125\n")
                            .or_throw();
  EXPECT_EQ(c.device("H100-SXM-80GB").memory_efficiency, 0.5);
  EXPECT_EQ(c.device("H100-SXM-80GB").gemm_half_extent, base.device("H100-SXM-80GB").gemm_half_extent);
  EXPECT_FALSE(c.framework("megatron")->dropout);
  EXPECT_EQ(c.framework("megatron")->context, base.framework("megatron")->context);
  EXPECT_EQ(c.framework("fsdp")->logit_bytes, base.framework("fsdp")->logit_bytes);
  // New ones start from the default device and from the engine.
  EXPECT_EQ(c.device("new").gemm_efficiency, base.device("default").gemm_efficiency);
  EXPECT_EQ(c.framework("new")->context, base.framework("trireme")->context);
  EXPECT_EQ(c.framework("other")->data_overlap, 0.125);
  EXPECT_EQ(c.framework("other")->reduce, base.framework("trireme")->reduce);
}

TEST(Calibration, RefusesByName) {
  struct Row {
    std::string text, option, rule;
  };
  const std::string device = "[device.H100-SXM-80GB]\n", framework = "[framework.fsdp]\n";
  const std::vector<Row> rows{
      {"[devices.a]\n", "mine.toml: devices", "not known"},
      {"device = 3\n", "mine.toml: device", "table of tables"},
      {"[device]\na = 3\n", "mine.toml: device.a", "table"},
      {"framework = \"fsdp\"\n", "mine.toml: framework", "table of tables"},
      {device + "gemm_eficiency = 0.5\n", "mine.toml: device.H100-SXM-80GB.gemm_eficiency", "not known"},
      {device + "gemm_efficiency = \"0.5\"\n", "mine.toml: device.H100-SXM-80GB.gemm_efficiency", "number"},
      {device + "gemm_efficiency = 1.01\n", "mine.toml: device.H100-SXM-80GB.gemm_efficiency", "between 0.01 and 1"},
      {device + "memory_efficiency = 0\n", "mine.toml: device.H100-SXM-80GB.memory_efficiency", "between"},
      {device + "kernel_launch = 5\n", "mine.toml: device.H100-SXM-80GB.kernel_launch", "text with its unit"},
      {framework + "context = \"2\"\n", "mine.toml: framework.fsdp.context", "has no unit"},
      {device + "kernel_launch = \"5 ells\"\n", "mine.toml: device.H100-SXM-80GB.kernel_launch", ""},
      {framework + "dropout = 1\n", "mine.toml: framework.fsdp.dropout", "true or false"},
      {framework + "context = 1\n", "mine.toml: framework.fsdp.context", "text with its unit"},
      {framework + "context = \"1 gallon\"\n", "mine.toml: framework.fsdp.context", ""},
      {framework + "fragmentation = -0.1\n", "mine.toml: framework.fsdp.fragmentation", "between 0 and 1"},
      {framework + "activations = \"jax\"\n", "mine.toml: framework.fsdp.activations", "not known"},
      {framework + "activations = 1\n", "mine.toml: framework.fsdp.activations", "not known"},
      {framework + "reduce = \"trees\"\n", "mine.toml: framework.fsdp.reduce", "not known"},
      {framework + "vocabulary_multiple = 0\n", "mine.toml: framework.fsdp.vocabulary_multiple", "between 1"},
      {framework + "vocabulary_multiple = 1.5\n", "mine.toml: framework.fsdp.vocabulary_multiple", "integer"},
      {framework + "colour = \"red\"\n", "mine.toml: framework.fsdp.colour", "not known"},
  };
  for (const Row& row : rows) {
    const Failure failure = refusal(row.text);
    EXPECT_EQ(failure.option, row.option) << row.text;
    EXPECT_THAT(failure.rule, HasSubstr(row.rule)) << row.text;
    EXPECT_FALSE(failure.value.empty()) << row.text;
  }
  EXPECT_EQ(refusal(device + "gemm_eficiency = 0.5\n").nearest, "gemm_efficiency");
  EXPECT_THAT(refusal(framework + "reduce = \"trees\"\n").nearest, HasSubstr("ring"));
  EXPECT_EQ(parse_calibration(Json(3), "mine.toml", {}).failure().option, "mine.toml");
}

TEST(Calibration, Files) {
  FakeEnv env;
  env.put_file("mine.toml", "[framework.fsdp]\nlogit_bytes = 3.5\n");
  env.put_file("broken.toml", "[framework.fsdp\n");
  env.put_file("wrong.toml", "[framework.fsdp]\nlogit_bytes = 99\n");
  EXPECT_EQ(load_calibration(env, "mine.toml")->framework("fsdp")->logit_bytes, 3.5);
  EXPECT_EQ(load_calibration(env, "")->framework("fsdp")->logit_bytes,
            default_calibration().framework("fsdp")->logit_bytes);
  EXPECT_FALSE(load_calibration(env, "broken.toml"));
  EXPECT_EQ(load_calibration(env, "wrong.toml").failure().option, "wrong.toml: framework.fsdp.logit_bytes");
  EXPECT_THROW(load_calibration(env, "absent.toml"), Error);
}

}  // namespace
}  // namespace trireme::planner
