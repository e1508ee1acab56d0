// A checkpoint of each version of the format is kept in tests/golden: it must be read for ever, to the bit.

#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/fake_env.h"
#include "checkpoint/model_files.h"
#include "checkpoint/reader.h"
#include "checkpoint/shard.h"
#include "checkpoint/store.h"

namespace trireme::checkpoint {
namespace {

// Version 2 carries files of the model.
constexpr int kVersions[] = {1, 2};
const std::vector<ModelFile> kModelFiles = {{"generation_config.json", "{\"eos_token_id\": [1, 2]}\n"},
                                            {"tokenizer.json", std::string("\0\xff\n", 3)}};

std::string golden(int version) {
  return fmt::format("{}/tests/golden/checkpoint_v{}/step-00000040", TRIREME_SOURCE_DIR, version);
}

// Numbers that tell tensor, kind, row and column, and in norm.weight those at the ends of the format.
float golden_value(const StoredState& tensor, std::int64_t row, std::int64_t column) {
  if (tensor.name == "norm.weight" && tensor.kind == plan::StateKind::kWeight) {
    using Limits = std::numeric_limits<float>;
    return std::array<float, 5>{-0.0F, Limits::denorm_min(), -Limits::max(), 1.0F / 3.0F, 1.0F}[row];
  }
  const auto index = static_cast<float>(row * tensor.columns() + column);
  const float offset = tensor.name == "embedding.weight" ? 7.0F : 100.0F;
  switch (tensor.kind) {
    case plan::StateKind::kWeight:
      return (index - offset) * 0.125F;
    case plan::StateKind::kFirstMoment:
      return -(index + offset) / 1024.0F;
    case plan::StateKind::kSecondMoment:
      break;
  }
  return std::ldexp(index + offset, -30);
}

Manifest golden_manifest() {
  Manifest manifest;
  manifest.progress = {40, 320, 40960, 3, 1, 1234.567};
  manifest.reason = "interval";
  manifest.saved_at = "2020-01-02T03:04:05Z";
  manifest.program = "trireme 0.1.0";
  manifest.layout = "dp 2";
  manifest.model = Json::object({{"model_type", "llama"}, {"hidden_size", 4}, {"rms_norm_eps", 1e-5}});
  manifest.run = Json::object({{"train", Json::object({{"steps", 100}, {"seed", 7}})}});
  manifest.data = Json::object({{"tokens", 123456}, {"checksum", "99aa06d3014798d86001c324468d497f"}});
  manifest.scaler = Json::object({{"scale", 65536.0}, {"good_steps", 12}});
  for (const plan::StateKind kind : plan::kStateKinds) {
    manifest.tensors.push_back({"embedding.weight", kind, {6, 4}, DType::kF32, {}});
    manifest.tensors.push_back({"norm.weight", kind, {5}, DType::kF32, {}});
    manifest.tensors.push_back({"head.weight", kind, {3, 8}, DType::kF32, {}});
  }
  return manifest;
}

// The slices of a part: a matrix cut by columns, a vector, a matrix cut inside a row.
std::vector<ShardSlice> golden_slices(int part) {
  std::vector<ShardSlice> slices;
  for (int i = 0; i < 9; i += 3) {
    if (part == 0) {
      slices.push_back({i, {{0, 6}, {0, 3}}});
      slices.push_back({i + 1, {{0, 2}, {0, 1}}});
      slices.push_back({i + 2, {{0, 1}, {0, 8}}});
      slices.push_back({i + 2, {{1, 2}, {0, 5}}});
    } else {
      slices.push_back({i, {{0, 6}, {3, 4}}});
      slices.push_back({i + 1, {{2, 5}, {0, 1}}});
      slices.push_back({i + 2, {{1, 2}, {5, 8}}});
      slices.push_back({i + 2, {{2, 3}, {0, 8}}});
    }
  }
  return slices;
}

// Writes the golden checkpoint and returns its manifest.
Manifest write_golden(Env& env, Store& store, int version) {
  Manifest manifest = golden_manifest();
  store.begin(manifest.progress.step);
  std::vector<std::vector<ShardSlice>> slices;
  std::vector<ShardRecord> records;
  for (int part = 0; part < 2; ++part) {
    slices.push_back(golden_slices(part));
    std::vector<float> values;
    const auto bytes_of = [&](std::size_t index) {
      const ShardSlice& slice = slices.back()[index];
      const StoredState& tensor = manifest.tensors[static_cast<std::size_t>(slice.tensor)];
      values.clear();
      for (std::int64_t row = slice.box.rows.begin; row < slice.box.rows.end; ++row) {
        for (std::int64_t column = slice.box.columns.begin; column < slice.box.columns.end; ++column) {
          values.push_back(golden_value(tensor, row, column));
        }
      }
      return std::as_bytes(std::span<const float>(values));
    };
    const std::string path = join_path(store.partial_path_of(manifest.progress.step), shard_name(part));
    records.push_back(write_shard(env, path, manifest.tensors, slices.back(), bytes_of));
  }
  add_shards(manifest, slices, records);
  if (version == 2) {
    manifest.model_files = write_model_files(env, store.partial_path_of(manifest.progress.step), kModelFiles);
  }
  store.commit(manifest.progress.step, manifest);
  return manifest;
}

TEST(GoldenCheckpointTest, EveryVersionIsWhole) {
  for (const int version : kVersions) {
    EXPECT_EQ(damages_of(posix_env(), golden(version)), std::vector<std::string>{}) << version;
    EXPECT_EQ(Reader::open_manifest(posix_env(), golden(version)).or_throw().version(), version);
  }
}

void expect_values(int version) {
  const Reader reader = Reader::open(posix_env(), golden(version)).or_throw();
  Manifest expected = golden_manifest();
  ASSERT_EQ(reader.manifest().tensors.size(), expected.tensors.size());
  std::vector<std::byte> buffer(static_cast<std::size_t>(reader.largest_slice().count));
  for (std::size_t i = 0; i < expected.tensors.size(); ++i) {
    const StoredState& tensor = reader.manifest().tensors[i];
    EXPECT_EQ(tensor.name, expected.tensors[i].name);
    EXPECT_EQ(tensor.kind, expected.tensors[i].kind);
    ASSERT_EQ(tensor.shape, expected.tensors[i].shape);
    const plan::TensorBox whole{{0, tensor.rows()}, {0, tensor.columns()}};
    std::vector<float> values(static_cast<std::size_t>(whole.elements()));
    reader.read_box(tensor, whole, buffer, values);
    for (std::int64_t row = 0; row < tensor.rows(); ++row) {
      for (std::int64_t column = 0; column < tensor.columns(); ++column) {
        const float value = values[static_cast<std::size_t>(row * tensor.columns() + column)];
        EXPECT_EQ(std::bit_cast<std::uint32_t>(value), std::bit_cast<std::uint32_t>(golden_value(tensor, row, column)))
            << tensor.name << " " << row << " " << column;
      }
    }
  }
  Manifest manifest = reader.manifest();
  EXPECT_EQ(manifest.files.size(), 2U);
  manifest.files.clear();
  EXPECT_EQ(read_model_files(posix_env(), golden(version), manifest),
            version == 2 ? kModelFiles : std::vector<ModelFile>{});
  manifest.model_files.clear();
  for (StoredState& tensor : manifest.tensors) tensor.slices.clear();
  EXPECT_EQ(manifest, expected);
}

TEST(GoldenCheckpointTest, EveryVersionHasItsValues) {
  for (const int version : kVersions) expect_values(version);
}

TEST(GoldenCheckpointTest, EveryVersionIsWrittenWithTheSameBytes) {
  for (const int version : kVersions) {
    FakeEnv env;
    Store store(env, "checkpoints");
    const Manifest manifest = write_golden(env, store, version);
    const std::vector<std::string> names = posix_env().list_directory(golden(version));
    EXPECT_EQ(env.list_directory(store.path_of(40)), names);
    for (const std::string& name : names) {
      EXPECT_TRUE(env.content(join_path(store.path_of(40), name)) ==
                  posix_env().read_file(join_path(golden(version), name)))
          << name;
    }
    EXPECT_EQ(Reader::open(posix_env(), golden(version)).or_throw().manifest(), manifest);
  }
}

}  // namespace
}  // namespace trireme::checkpoint
