#include "cli/cluster_mtbf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/fake_env.h"

namespace trireme::cli {
namespace {

using testing::HasSubstr;

constexpr double kHour = 3600;

// A preset's text with another time between failures; none where `mtbf` is empty.
std::string cluster_file(const std::string& mtbf) {
  std::string text(cluster::preset_text("h100"));
  const std::size_t begin = text.find("mtbf = ");
  const std::size_t end = text.find('\n', begin);
  return text.replace(begin, end + 1 - begin, mtbf.empty() ? "" : "mtbf = \"" + mtbf + "\"\n");
}

Result<Seconds> mtbf_of(Env& env, const std::string& text, std::int64_t devices) {
  const Result<cluster::Cluster> cluster = load_run_cluster(env, text);
  if (!cluster) return cluster.failure();
  return cluster_mtbf(*cluster, text, devices);
}

TEST(ClusterMtbf, RatesOfTheRunsDevicesAdd) {
  FakeEnv env;
  EXPECT_DOUBLE_EQ(mtbf_of(env, "h100", 1)->count, 50677 * kHour);
  EXPECT_DOUBLE_EQ(mtbf_of(env, "h100", 16384)->count, 50677 * kHour / 16384);
  EXPECT_DOUBLE_EQ(mtbf_of(env, "h100:2048", 12)->count,
                   50677 * kHour / 12);  // the run's devices, not the cluster's
}

TEST(ClusterMtbf, FromAFile) {
  FakeEnv env;
  env.put_file("lab/cluster.toml", cluster_file("100h"));
  EXPECT_DOUBLE_EQ(mtbf_of(env, "lab/cluster.toml", 8)->count, 12.5 * kHour);
}

TEST(ClusterMtbf, Refusals) {
  FakeEnv env;
  env.put_file("silent.toml", cluster_file(""));
  env.put_file("bad.toml", cluster_file("0h"));
  const auto sentence = [&](const char* cluster) { return mtbf_of(env, cluster, 8).failure().sentence(); };
  EXPECT_EQ(
      sentence("silent.toml"),
      "checkpoint.cluster = silent.toml: does not say how often a device fails; add device.mtbf to it, e.g. mtbf = "
      "\"3y\", or name a preset");
  EXPECT_THAT(sentence("bad.toml"), HasSubstr("bad.toml: device.mtbf = \"0h\": must be from 1s to 1e12s"));
  EXPECT_THAT(sentence("h10"), HasSubstr("checkpoint.cluster = h10: is no file and no preset"));
  EXPECT_THAT(sentence("h10"), HasSubstr("nearest legal: h100"));
  EXPECT_THAT(sentence(""), HasSubstr("checkpoint.cluster: is no file and no preset"));
  EXPECT_THAT(sentence("h100:-8"), HasSubstr("checkpoint.cluster = -8: must be at least 1"));
}

}  // namespace
}  // namespace trireme::cli
