#include "cluster/cluster.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/fake_env.h"

namespace trireme::cluster {
namespace {

using testing::HasSubstr;

Cluster parsed(std::string_view text) { return parse_cluster(parse_toml(text, "test").or_throw(), "test").or_throw(); }

Cluster preset(const std::string& name) {
  FakeEnv env;
  return load_cluster(env, name).or_throw();
}

void expect_equal(const Cluster& a, const Cluster& b) {
  EXPECT_EQ(a.name, b.name);
  EXPECT_EQ(a.hosts, b.hosts);
  EXPECT_EQ(a.devices_per_host, b.devices_per_host);
  EXPECT_EQ(a.cards_per_host, b.cards_per_host);
  EXPECT_EQ(a.device.name, b.device.name);
  EXPECT_EQ(a.device.memory, b.device.memory);
  EXPECT_EQ(a.device.bf16_flops_per_s, b.device.bf16_flops_per_s);
  EXPECT_EQ(a.device.fp32_flops_per_s, b.device.fp32_flops_per_s);
  EXPECT_EQ(a.device.memory_bytes_per_s, b.device.memory_bytes_per_s);
  EXPECT_EQ(a.device.price_per_hour, b.device.price_per_hour);
  EXPECT_EQ(a.inside.bytes_per_s, b.inside.bytes_per_s);
  EXPECT_EQ(a.inside.latency, b.inside.latency);
  EXPECT_EQ(a.between.bytes_per_s, b.between.bytes_per_s);
  EXPECT_EQ(a.between.latency, b.between.latency);
  EXPECT_EQ(a.device_mtbf, b.device_mtbf);
  EXPECT_EQ(a.storage_bytes_per_s, b.storage_bytes_per_s);
  EXPECT_EQ(a.sources, b.sources);
}

constexpr std::string_view kWhole = R"(
name = "two boxes"
[hosts]
count = 2
devices = 4
cards = 1
[device]
name = "X-16GiB"
memory = "16GiB"
bf16 = "1.1 PFLOP/s"
fp32 = "20 TFLOP/s"
memory_bandwidth = "1 TB/s"
mtbf = "3y"
price_per_hour = 2.35
[links.inside]
bandwidth = "25 GB/s"
latency = "0s"
[links.between]
bandwidth = "100Gb/s"
latency = "10us"
[storage]
bandwidth = "2GB/s"
[sources]
device.memory = "nvidia-smi"
"links.inside.bandwidth" = "trireme bench"
)";

TEST(ParseCluster, EveryKey) {
  const Cluster c = parsed(kWhole);
  EXPECT_EQ(c.name, "two boxes");
  EXPECT_EQ(c.hosts, 2);
  EXPECT_EQ(c.devices_per_host, 4);
  EXPECT_EQ(c.devices(), 8);
  EXPECT_EQ(c.cards_per_host, 1);
  EXPECT_EQ(c.device.name, "X-16GiB");
  EXPECT_EQ(c.device.memory, Bytes{16LL << 30});
  EXPECT_EQ(c.device.bf16_flops_per_s, 1.1 * 1e15);
  EXPECT_EQ(c.device.fp32_flops_per_s, 20e12);
  EXPECT_EQ(c.device.memory_bytes_per_s, 1e12);
  EXPECT_EQ(c.device.price_per_hour, 2.35);
  EXPECT_EQ(c.device_mtbf.count, 3 * 365.25 * 86400);
  EXPECT_EQ(c.inside.bytes_per_s, 25e9);
  EXPECT_EQ(c.inside.latency, Seconds{0});
  EXPECT_EQ(c.between.bytes_per_s, 12.5e9);
  EXPECT_EQ(c.between.latency, Seconds{10 * 1e-6});
  EXPECT_EQ(c.storage_bytes_per_s, 2e9);
  EXPECT_EQ(c.sources.at("device.memory"), "nvidia-smi");
  EXPECT_EQ(c.sources.at("links.inside.bandwidth"), "trireme bench");
}

TEST(ParseCluster, MoreCardsThanDevicesIsLegal) {
  std::string text(kWhole);
  text.replace(text.find("cards = 1"), 9, "cards = 9");
  EXPECT_EQ(parsed(text).cards_per_host, 9);
}

TEST(ParseCluster, WhatIsNotGivenIsZeroAndIsNotWritten) {
  const Cluster c = preset("h100");
  EXPECT_EQ(c.device.price_per_hour, 0);
  EXPECT_EQ(c.storage_bytes_per_s, 0);
  const std::string text = to_toml(c);
  EXPECT_EQ(text.find("price"), std::string::npos) << text;
  EXPECT_EQ(text.find("storage"), std::string::npos) << text;
}

TEST(ToToml, ReadsBackAsTheSameCluster) {
  expect_equal(parsed(to_toml(parsed(kWhole))), parsed(kWhole));
  for (const std::string_view name : preset_names()) {
    const Cluster c = preset(std::string(name));
    expect_equal(parsed(to_toml(c)), c);
  }
  Cluster odd = parsed(kWhole);  // no unit makes these short, and names may hold anything
  odd.device.bf16_flops_per_s = 1e15 / 3;
  odd.inside.latency = Seconds{1e-6 / 3};
  odd.device.memory = Bytes{(1LL << 40) + 1};
  odd.name = "a \"b\" \\ \n \x7f \xc3\xa9";
  expect_equal(parsed(to_toml(odd)), odd);
}

TEST(Presets, AreTheVeryFilesInAFixedOrder) {
  const std::vector<std::string_view> expected = {"a100-40", "a100-80",     "h100",  "h200",
                                                  "b200",    "gb200-nvl72", "mi300x"};
  EXPECT_EQ(preset_names(), expected);
  for (const std::string_view name : expected) {
    EXPECT_EQ(preset_text(name), posix_env().read_file("examples/clusters/" + std::string(name) + ".toml")) << name;
    EXPECT_EQ(preset(std::string(name)).name, name);
  }
  const std::vector<std::string> files = posix_env().list_directory("examples/clusters");
  EXPECT_EQ(files.size(), expected.size());
  EXPECT_EQ(preset_text("h10"), "");
}

// "table.key" of each value below a table, sources left out.
void list_keys(const Json& table, const std::string& path, std::vector<std::string>& out) {
  for (const auto& [name, value] : table.as_object()) {
    const std::string full = path.empty() ? name : path + "." + name;
    if (full == "sources") continue;
    if (value.is_object()) {
      list_keys(value, full, out);
    } else {
      out.push_back(full);
    }
  }
}

TEST(Presets, EveryFigureHasASource) {
  for (const std::string_view name : preset_names()) {
    const Cluster c = preset(std::string(name));
    std::vector<std::string> names;
    list_keys(parse_toml(preset_text(name), name).or_throw(), "", names);
    EXPECT_EQ(names.size(), 14U) << name;
    for (const std::string& key : names) {
      if (key == "name" || key == "device.name") continue;
      ASSERT_TRUE(c.sources.contains(key)) << name << " " << key;
      EXPECT_GT(c.sources.at(key).size(), 10U) << name << " " << key;
    }
    for (const char* key : {"links.inside.latency", "links.between.latency"}) {
      EXPECT_THAT(c.sources.at(key), HasSubstr("not a vendor's figure"));
    }
    EXPECT_EQ(c.sources.size(), names.size() - 2) << name;
  }
}

// What programs are given, not the number in the name of the card: more than its decimal gigabytes, less than
// nvidia-smi shows.
TEST(Presets, MemoryIsWhatProgramsAreGiven) {
  constexpr double kMebi = 1 << 20;
  const std::tuple<const char*, double, double> cards[] = {
      {"a100-40", 40e9, 40960}, {"a100-80", 80e9, 81920},       {"h100", 80e9, 81559},    {"h200", 141e9, 143771},
      {"b200", 180e9, 183359},  {"gb200-nvl72", 186e9, 189471}, {"mi300x", 192e9, 196593}};
  EXPECT_EQ(std::size(cards), preset_names().size());
  for (const auto& [name, nominal, shown] : cards) {
    const auto memory = static_cast<double>(preset(name).device.memory.count);
    EXPECT_GT(memory, nominal) << name;
    EXPECT_LT(memory, shown * kMebi) << name;
    EXPECT_GT(memory, 0.95 * shown * kMebi) << name;
  }
}

TEST(Presets, FiguresOfTheH100) {
  const Cluster c = preset("h100");
  EXPECT_EQ(c.hosts, 1);
  EXPECT_EQ(c.devices_per_host, 8);
  EXPECT_EQ(c.cards_per_host, 8);
  EXPECT_EQ(c.device.memory, Bytes{84'932'978'278});  // 79.1 GiB
  EXPECT_EQ(c.device.bf16_flops_per_s, 989.4 * 1e12);
  EXPECT_EQ(c.device.memory_bytes_per_s, 3.35e12);
  EXPECT_EQ(c.inside.bytes_per_s, 450e9);
  EXPECT_EQ(c.between.bytes_per_s, 50e9);
  // 16,384 devices of this mtbf fail 419 times in 54 days.
  EXPECT_NEAR(54 * 86400.0 * 16384 / c.device_mtbf.count, 419, 0.01);
}

TEST(WithDevices, WholeHostsOrOneSmallerHost) {
  const Cluster h100 = preset("h100");
  EXPECT_EQ(with_devices(h100, 2048)->hosts, 256);
  EXPECT_EQ(with_devices(h100, 2048)->devices_per_host, 8);
  EXPECT_EQ(with_devices(h100, 8)->hosts, 1);
  const Cluster small = with_devices(with_devices(h100, 2048).or_throw(), 3).or_throw();
  EXPECT_EQ(small.hosts, 1);
  EXPECT_EQ(small.devices_per_host, 3);
  EXPECT_EQ(with_devices(h100, 1 << 24)->devices(), 1 << 24);
}

TEST(WithDevices, Refusals) {
  const Cluster h100 = preset("h100");
  EXPECT_EQ(with_devices(h100, 20).failure().sentence(),
            "devices = 20: must be whole hosts of 8 devices, or less than one host; nearest legal: 16, 24");
  EXPECT_EQ(with_devices(h100, 0).failure().sentence(), "devices = 0: must be at least 1; nearest legal: 1");
  EXPECT_EQ(with_devices(h100, -8).failure().rule, "must be at least 1");
  EXPECT_EQ(with_devices(h100, (1 << 24) + 8).failure().sentence(),
            "devices = 16777224: must be at most 16777216; nearest legal: 16777216");
  EXPECT_FALSE(with_devices(h100, INT64_MAX).ok());
  // 2^24 is no multiple of 72: above the last whole rack there is none.
  EXPECT_EQ(with_devices(preset("gb200-nvl72"), 1 << 24).failure().nearest, "16777152");
}

TEST(LoadCluster, FilesAndPresets) {
  FakeEnv env;
  env.put_file("clusters/two.toml", kWhole);
  env.put_file("odd:name", kWhole);
  EXPECT_EQ(load_cluster(env, "clusters/two.toml")->name, "two boxes");
  EXPECT_EQ(load_cluster(env, "odd:name")->name, "two boxes");
  env.put_file("h100", kWhole);
  env.put_file("./h100", kWhole);
  EXPECT_EQ(load_cluster(env, "h100")->devices(), 8);  // a preset means the same in every folder
  EXPECT_EQ(load_cluster(env, "h100")->name, "h100");
  EXPECT_EQ(load_cluster(env, "./h100")->name, "two boxes");
  EXPECT_EQ(load_cluster(env, "h100:2048")->devices(), 2048);
  EXPECT_EQ(load_cluster(env, "h100:4")->devices_per_host, 4);
  EXPECT_EQ(load_cluster(env, "gb200-nvl72:144")->hosts, 2);
}

TEST(LoadCluster, Refusals) {
  FakeEnv env;
  env.put_file("clusters/bad.toml", "name = ");
  env.put_file("clusters/short.toml", "name = \"x\"");
  const auto sentence = [&](const char* asked) { return load_cluster(env, asked).failure().sentence(); };
  EXPECT_EQ(sentence("h10:2048"),
            "cluster = h10:2048: is no file and no preset (presets: a100-40, a100-80, h100, h200, b200, gb200-nvl72, "
            "mi300x); nearest legal: h100");
  EXPECT_THAT(sentence(""), HasSubstr("no preset"));
  EXPECT_THAT(sentence("clusters"), HasSubstr("is a directory"));
  EXPECT_THAT(sentence("clusters/bad.toml"), HasSubstr("clusters/bad.toml: line 1"));
  EXPECT_THAT(sentence("clusters/short.toml"), HasSubstr("clusters/short.toml: hosts.count: the key is missing"));
  for (const char* asked : {"h100:", "h100:many", "h100:8x", "h100:99999999999999999999"}) {
    EXPECT_THAT(sentence(asked), HasSubstr("after the colon stands the number of devices; write it like h100:64"));
  }
  EXPECT_THAT(sentence("h100:12"), HasSubstr("nearest legal: 8, 16"));
  EXPECT_THAT(sentence("h100:-8"), HasSubstr("at least 1"));
}

}  // namespace
}  // namespace trireme::cluster
