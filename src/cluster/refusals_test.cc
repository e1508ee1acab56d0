// What parse_cluster refuses, and in which words; and that no text whatever makes it crash.

#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "cluster/cluster.h"

namespace trireme::cluster {
namespace {

using testing::HasSubstr;

// The H100 preset with the first line that begins so replaced ("" removes it).
std::string with_line(std::string_view beginning, std::string_view line) {
  std::string text(preset_text("h100"));
  const std::size_t at = text.find("\n" + std::string(beginning) + " = ");
  EXPECT_NE(at, std::string::npos) << beginning;
  const std::size_t end = text.find('\n', at + 1);
  return text.replace(at + 1, end - at - 1, line);
}

std::string refusal(const std::string& text) {
  const Result<Json> document = parse_toml(text, "c.toml");
  if (!document) return document.failure().sentence();
  const Result<Cluster> cluster = parse_cluster(*document, "c.toml");
  return cluster ? "none" : cluster.failure().sentence();
}

std::string refusal(std::string_view beginning, std::string_view line) { return refusal(with_line(beginning, line)); }

TEST(ClusterRefusals, UnknownKeysNameTheNearest) {
  EXPECT_EQ(refusal("bf16", "bf_16 = \"1 TFLOP/s\""),
            "c.toml: device.bf_16 = \"1 TFLOP/s\": unknown key; nearest legal: device.bf16");
  EXPECT_EQ(refusal("count", "number = 4"), "c.toml: hosts.number = 4: unknown key");
  EXPECT_EQ(refusal("name", "title = \"x\""), "c.toml: title = \"x\": unknown key");
  EXPECT_EQ(refusal("[host]\ncount = 1\n"), "c.toml: host = a table: unknown key; nearest legal: hosts");
  EXPECT_THAT(refusal("[links.middle]\n"), HasSubstr("links.middle = a table: unknown key"));
  EXPECT_THAT(refusal("x" + std::string(100000, 'y') + " = 1\n"), HasSubstr("yyy... = 1: unknown key"));
}

TEST(ClusterRefusals, MissingKeysAreNamed) {
  for (const char* key :
       {"count", "devices", "cards", "memory", "bf16", "fp32", "memory_bandwidth", "bandwidth", "latency", "name"}) {
    EXPECT_THAT(refusal(key, ""), HasSubstr("the key is missing; add ")) << key;
  }
  EXPECT_EQ(refusal(""), "c.toml: name: the key is missing; add name");
  EXPECT_EQ(refusal("mtbf", ""), "none");
}

TEST(ClusterRefusals, TypesOfTables) {
  EXPECT_EQ(refusal("hosts = 3\n"), "c.toml: hosts = 3: must be a table");
  EXPECT_EQ(refusal("links = \"fast\"\n"), "c.toml: links = \"fast\": must be a table");
  EXPECT_EQ(refusal("links.inside = [1]\n"), "c.toml: links.inside = a list: must be a table");
  EXPECT_EQ(refusal("sources = true\n"), "c.toml: sources = true: must be a table");
  EXPECT_EQ(refusal("[[storage]]\nbandwidth = \"1GB/s\"\n"), "c.toml: storage = a list: must be a table");
}

TEST(ClusterRefusals, Names) {
  EXPECT_EQ(refusal("name", "name = 3"), "c.toml: name = 3: must be text");
  EXPECT_EQ(refusal("name", "name = \"\""), "c.toml: name = \"\": must have 1 to 200 bytes");
  EXPECT_THAT(refusal("name", "name = \"" + std::string(201, 'x') + "\""), HasSubstr("x...: must have 1 to 200 bytes"));
  EXPECT_EQ(refusal("name", "[name]\nx = 1"), "c.toml: name = a table: must be text");
  std::string cut = "name = \"";
  for (int i = 0; i < 150; ++i) cut += "\xc3\xa9";  // two bytes each: shown up to a whole one
  EXPECT_THAT(refusal("name", cut + "\""), HasSubstr("\xc3\xa9...: must"));
}

TEST(ClusterRefusals, Counts) {
  EXPECT_EQ(refusal("count", "count = 0"),
            "c.toml: hosts.count = 0: must be an integer from 1 to 16777216; nearest legal: 1");
  EXPECT_EQ(refusal("devices", "devices = -8"),
            "c.toml: hosts.devices = -8: must be an integer from 1 to 16777216; nearest legal: 1");
  EXPECT_EQ(refusal("cards", "cards = 16777217"),
            "c.toml: hosts.cards = 16777217: must be an integer from 1 to 16777216; nearest legal: 16777216");
  EXPECT_THAT(refusal("count", "count = 9223372036854775807"), HasSubstr("from 1 to 16777216"));
  EXPECT_THAT(refusal("count", "count = 9223372036854775808"), HasSubstr("c.toml: line"));
  EXPECT_EQ(refusal("count", "count = 4.0"), "c.toml: hosts.count = 4.0: must be an integer");
  EXPECT_EQ(refusal("count", "count = \"4\""), "c.toml: hosts.count = \"4\": must be an integer");
  EXPECT_EQ(refusal("count", "count = 16777216"),
            "c.toml: hosts.count = 16777216: hosts.count x hosts.devices (8) must be at most 16777216; nearest legal: "
            "2097152");
}

TEST(ClusterRefusals, Memory) {
  EXPECT_EQ(refusal("memory", "memory = 80"),
            "c.toml: device.memory = 80: must be text with a unit; write it like \"80GB\"");
  EXPECT_EQ(refusal("memory", "memory = \"80\""),
            "c.toml: device.memory = \"80\": has no unit; did you mean 80GB, 80GiB? bytes are written 80B");
  EXPECT_EQ(refusal("memory", "memory = \"0GB\""), "c.toml: device.memory = \"0GB\": must be from 1B to 1PB");
  EXPECT_EQ(refusal("memory", "memory = \"1001TB\""), "c.toml: device.memory = \"1001TB\": must be from 1B to 1PB");
  EXPECT_THAT(refusal("memory", "memory = \"80Gb\""),
              HasSubstr("device.memory = \"80Gb\": has the unit \"Gb\"; legal"));
  EXPECT_THAT(refusal("memory", "memory = \"-80GB\""), HasSubstr("must be a number that is not negative"));
  EXPECT_THAT(refusal("memory", "memory = \"1e400GB\""), HasSubstr("device.memory"));
  EXPECT_THAT(refusal("memory", "memory = \"99999999PB\""), HasSubstr("less than 2^63 bytes"));
}

TEST(ClusterRefusals, Rates) {
  EXPECT_EQ(refusal("bf16", "bf16 = 1e15"),
            "c.toml: device.bf16 = 1e+15: must be text with a unit; write it like \"989.4 TFLOP/s\"");
  EXPECT_EQ(refusal("bf16", "bf16 = \"0 TFLOP/s\""),
            "c.toml: device.bf16 = \"0 TFLOP/s\": must be from 1 FLOP/s to 1000000 PFLOP/s");
  EXPECT_THAT(refusal("fp32", "fp32 = \"1e7 PFLOP/s\""), HasSubstr("must be from 1 FLOP/s"));
  EXPECT_THAT(refusal("fp32", "fp32 = \"60 TFLOPS\""), HasSubstr("device.fp32 = \"60 TFLOPS\": has the unit"));
  EXPECT_THAT(refusal("fp32", "fp32 = \"1e300 PFLOP/s\""), HasSubstr("too large"));
  EXPECT_EQ(refusal("memory_bandwidth", "memory_bandwidth = \"0.0GB/s\""),
            "c.toml: device.memory_bandwidth = \"0.0GB/s\": must be from 1 B/s to 1000 PB/s");
  EXPECT_EQ(refusal("bandwidth", "bandwidth = \"9999PB/s\""),
            "c.toml: links.inside.bandwidth = \"9999PB/s\": must be from 1 B/s to 1000 PB/s");
  EXPECT_THAT(refusal("bandwidth", "bandwidth = \"450GB\""), HasSubstr("links.inside.bandwidth = \"450GB\": has the"));
  EXPECT_THAT(refusal("[storage]\nbandwidth = 3\n"), HasSubstr("storage.bandwidth = 3: must be text with a unit"));
}

TEST(ClusterRefusals, Times) {
  EXPECT_EQ(refusal("latency", "latency = \"61s\""), "c.toml: links.inside.latency = \"61s\": must be from 0s to 1min");
  EXPECT_THAT(refusal("latency", "latency = \"3\""), HasSubstr("links.inside.latency = \"3\": has no unit"));
  EXPECT_THAT(refusal("latency", "latency = 3e-6"), HasSubstr("must be text with a unit; write it like \"3us\""));
  EXPECT_EQ(refusal("mtbf", "mtbf = \"0h\""),
            "c.toml: device.mtbf = \"0h\": must be from 1s to 1e12s; leave it out if it is not known");
  EXPECT_THAT(refusal("mtbf", "mtbf = \"1e9y\""), HasSubstr("must be from 1s to 1e12s"));
}

TEST(ClusterRefusals, Prices) {
  for (const char* price : {"0", "-2.5", "1e10"}) {
    EXPECT_THAT(refusal("mtbf", fmt::format("price_per_hour = {}", price)),
                HasSubstr("must be above 0 and at most 1e9; leave it out if it is not known"));
  }
  EXPECT_THAT(refusal("mtbf", "price_per_hour = \"2$\""),
              HasSubstr("device.price_per_hour = \"2$\": must be a number"));
  EXPECT_EQ(refusal("mtbf", "price_per_hour = 2"), "none");
}

TEST(ClusterRefusals, Sources) {
  EXPECT_EQ(refusal("hosts.count", "hosts.count = 3"), "c.toml: sources.hosts.count = 3: must be text");
  EXPECT_EQ(refusal("hosts.count", "hosts.counts = \"x\""),
            "c.toml: sources.hosts.counts = \"x\": a source belongs to a key, and this is none; nearest legal: "
            "hosts.count");
  EXPECT_THAT(refusal("[sources]\nlinks = \"x\"\n"), HasSubstr("and this is none"));
  EXPECT_THAT(refusal("hosts.count", "hosts.count.deeper = \"x\""), HasSubstr("hosts.count = a table: must be text"));
  EXPECT_THAT(refusal("hosts.count", "hosts.count = \"x\"\n\"hosts.count\" = \"y\""), HasSubstr("is given twice"));
}

TEST(ClusterRefusals, AKeyGivenTwice) {
  EXPECT_EQ(refusal("name", "name = \"x\"\n\"hosts.count\" = 1"), "c.toml: hosts.count = 1: the key is given twice");
}

TEST(ClusterRefusals, DocumentsThatAreNoTables) {
  EXPECT_EQ(parse_cluster(Json(3), "c.toml").failure().sentence(), "c.toml = integer: must be a table of keys");
  Json document = parse_toml(preset_text("h100"), "").or_throw();
  document["device"]["price_per_hour"] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(parse_cluster(document, "c").failure().sentence(), HasSubstr("= not a finite number: must be above 0"));
  document["device"]["memory"] = Json();
  EXPECT_THAT(parse_cluster(document, "c").failure().sentence(), HasSubstr("device.memory = null: must be text"));
}

TEST(ClusterRefusals, DeepDocuments) {
  std::string lists = "name = ";
  for (int i = 0; i < 100000; ++i) lists += '[';
  EXPECT_NE(refusal(lists), "none");
  EXPECT_THAT(refusal("a.a.a.a.a.a.a.a = 1\n"), HasSubstr("a = a table: unknown key"));
}

// Bytes of a preset changed, removed, doubled: any outcome but an exception.
TEST(ClusterRefusals, NoTextCrashes) {
  const std::string_view original = preset_text("mi300x");
  constexpr std::string_view kBytes = "0123456789.eE+-=\"'[]{}#\n \\_,nianPTGB/s\x80\xff";
  int accepted = 0;
  for (std::uint64_t round = 0; round < 3000; ++round) {
    std::string text(original);
    std::uint64_t draw = 0;
    const auto below = [&](std::size_t end) { return random_bits({.seed = 1, .stream = round}, draw++) % end; };
    for (std::size_t changes = 1 + below(4); changes > 0; --changes) {
      const std::size_t at = below(text.size());
      const char byte = kBytes[below(kBytes.size())];
      const std::size_t kind = below(3);
      if (kind == 0) text[at] = byte;
      if (kind == 1) text.erase(at, 1 + below(7));
      if (kind == 2) text.insert(at, 1 + below(3), byte);
    }
    accepted += refusal(text) == "none" ? 1 : 0;
  }
  EXPECT_GT(accepted, 0);
  EXPECT_LT(accepted, 3000);
}

}  // namespace
}  // namespace trireme::cluster
