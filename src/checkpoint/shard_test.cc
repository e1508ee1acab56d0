#include "checkpoint/shard.h"

#include <cstring>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/fake_env.h"
#include "checkpoint/checksum.h"
#include "checkpoint/safetensors.h"

namespace trireme::checkpoint {
namespace {

using plan::StateKind;
using plan::TensorBox;
using testing::HasSubstr;

constexpr const char* kPath = "step/part-00000.safetensors";

std::vector<StoredState> tensors(std::int64_t rows = 4, std::int64_t columns = 6) {
  return {{"a.weight", StateKind::kWeight, {rows, columns}, DType::kF32, {}},
          {"b", StateKind::kSecondMoment, {8}, DType::kF32, {}}};
}

TensorBox box(plan::Interval rows, plan::Interval columns = {0, 1}) { return {rows, columns}; }

std::vector<ShardSlice> slices() { return {{1, box({2, 5})}, {0, box({0, 4}, {0, 2})}, {0, box({1, 2}, {2, 6})}}; }

// Slice i holds i + 1, i + 1.5, i + 2, ...
class Source {
 public:
  explicit Source(std::vector<ShardSlice> parts) : parts_(std::move(parts)) {}

  std::vector<float> values(std::size_t index) const {
    std::vector<float> all(static_cast<std::size_t>(parts_[index].box.elements()));
    for (std::size_t k = 0; k < all.size(); ++k) all[k] = static_cast<float>(index + 1) + 0.5F * static_cast<float>(k);
    return all;
  }
  SliceBytes function() {
    return [this](std::size_t index) {
      EXPECT_EQ(index, next_++);
      buffer_ = values(index);  // the span before is dead
      return std::as_bytes(std::span(buffer_));
    };
  }

 private:
  std::vector<ShardSlice> parts_;
  std::size_t next_ = 0;
  std::vector<float> buffer_;
};

ShardRecord write(FakeEnv& env, const std::vector<StoredState>& states = tensors(),
                  const std::vector<ShardSlice>& parts = slices()) {
  Source source(parts);
  env.make_directories("step");
  return write_shard(env, kPath, states, parts, source.function());
}

TEST(ShardTest, IsASafetensorsFileOfSlicesInTheirOrder) {
  FakeEnv env;
  const ShardRecord record = write(env);
  const auto reader = SafetensorsReader::open(env, kPath).or_throw();
  ASSERT_EQ(reader.tensors().size(), 3U);
  EXPECT_EQ(reader.metadata(), (Metadata{{"format", "pt"}}));
  const char* names[] = {"exp_avg_sq/b/2:5", "weight/a.weight/0:4,0:2", "weight/a.weight/1:2,2:6"};
  const std::vector<std::int64_t> shapes[] = {{3}, {4, 2}, {1, 4}};
  for (std::size_t i = 0; i < 3; ++i) {
    const StoredTensor& stored = reader.tensors()[i];
    EXPECT_EQ(stored.name, names[i]);
    EXPECT_EQ(stored.shape, shapes[i]);
    const std::vector<float> expected = Source(slices()).values(i);
    std::vector<float> found(expected.size());
    reader.read_all(stored.name, found);
    EXPECT_EQ(found, expected);
    EXPECT_EQ(record.checksums[i], checksum_of(std::as_bytes(std::span(expected))));
  }
  const std::string content = env.content(kPath);
  const auto header = static_cast<std::size_t>(reader.tensors()[0].begin);
  EXPECT_EQ(header % 8, 0U);
  EXPECT_EQ(record.file.name, "part-00000.safetensors");
  EXPECT_EQ(record.file.bytes, static_cast<std::int64_t>(content.size()));
  EXPECT_EQ(record.file.header_checksum, checksum_of(std::string_view(content).substr(0, header)));
  EXPECT_EQ(shard_bytes(tensors(), slices()), Bytes{record.file.bytes});
}

TEST(ShardTest, ARankWithNothingToWriteWritesAnEmptyOne) {
  FakeEnv env;
  const ShardRecord record = write(env, tensors(), {});
  EXPECT_TRUE(record.checksums.empty());
  EXPECT_TRUE(SafetensorsReader::open(env, kPath).or_throw().tensors().empty());
}

TEST(ShardTest, IsDurableWhenWritten) {
  FakeEnv env;
  write(env);
  const std::string content = env.content(kPath);
  env.sync_directory("step");
  env.sync_directory(".");
  env.lose_power();
  EXPECT_EQ(env.content(kPath), content);
}

std::int64_t operations_of(const std::vector<StoredState>& states, const std::vector<ShardSlice>& parts) {
  FakeEnv env;
  Source source(parts);
  env.make_directories("step");
  env.fail_operation(0);
  write_shard(env, kPath, states, parts, source.function());
  return env.operations();
}

TEST(ShardTest, SmallSlicesShareAWriteAndLargeOnesAreWrittenAsTheyAre) {
  constexpr std::int64_t kOthers = 4;  // create, reserve, sync, close
  EXPECT_EQ(operations_of(tensors(), slices()), kOthers + 1);
  const std::int64_t mebi = (std::int64_t{1} << 20) / 4;  // elements
  const auto states = tensors(8, mebi);
  std::vector<ShardSlice> parts;
  for (int row = 0; row < 3; ++row) parts.push_back({0, box({row, row + 1}, {0, mebi})});
  EXPECT_EQ(operations_of(states, parts), kOthers + 1 + 3);  // the header and each slice
  parts.clear();
  for (int row = 0; row < 8; ++row) parts.push_back({0, box({row, row + 1}, {0, mebi / 4})});
  EXPECT_EQ(operations_of(states, parts), kOthers + 3);  // header and 3 quarters, 4, 1
}

TEST(ShardTest, AFullDiskIsToldBeforeTheFirstByte) {
  FakeEnv env;
  env.limit_bytes(shard_bytes(tensors(), slices()).count);
  write(env);
  env.limit_bytes(shard_bytes(tensors(), slices()).count - 1);
  try {
    write(env);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kStorage);
    EXPECT_THAT(error.what(), HasSubstr("No space left on device"));
  }
  EXPECT_EQ(env.content(kPath), "");
}

TEST(ShardTest, EachOperationThatFailsEndsIt) {
  const std::int64_t operations = operations_of(tensors(), slices());
  for (std::int64_t n = 1; n <= operations; ++n) {
    FakeEnv env;
    Source source(slices());
    env.make_directories("step");
    env.fail_operation(n);
    EXPECT_THROW(write_shard(env, kPath, tensors(), slices(), source.function()), Error) << n;
  }
}

TEST(ShardTest, ASliceOfAnotherLengthOrTensorIsABrokenInvariant) {
  FakeEnv env;
  env.make_directories("step");
  const std::vector<float> values(4);
  const SliceBytes four = [&](std::size_t) { return std::as_bytes(std::span(values)); };
  EXPECT_THROW(write_shard(env, kPath, tensors(), slices(), four), InternalError);
  EXPECT_THROW(write_shard(env, kPath, tensors(), {{2, box({0, 4})}}, four), InternalError);
  EXPECT_THROW(write_shard(env, kPath, tensors(), {{1, box({0, 4})}, {1, box({0, 4})}}, four), InternalError);
}

TEST(ShardTest, ARecordTravelsAsALine) {
  FakeEnv env;
  const ShardRecord record = write(env);
  const std::string text = to_text(record);
  EXPECT_EQ(text.find('\n'), std::string::npos);
  const ShardRecord back = shard_record_from_text(text);
  EXPECT_EQ(back.file, record.file);
  EXPECT_EQ(back.checksums, record.checksums);
  for (const std::string& wrong : {std::string(), std::string("{}"), std::string("[1]"), text + " ",
                                   text.substr(0, text.size() - 1), std::string(R"({"name": 1})")}) {
    EXPECT_THROW(shard_record_from_text(wrong), InternalError) << wrong;
  }
}

TEST(ShardTest, ShardsArePutTogetherInTheManifest) {
  Manifest manifest;
  manifest.tensors = tensors();
  const std::vector<ShardSlice> rest = {{1, box({5, 8})}};
  const ShardRecord first = {{"part-00000.safetensors", 100, "h0"}, {"c0", "c1", "c2"}};
  const ShardRecord second = {{"part-00001.safetensors", 50, "h1"}, {"c3"}};
  add_shards(manifest, {slices(), rest}, {first, second});
  EXPECT_EQ(manifest.files, (std::vector<StoredFile>{first.file, second.file}));
  EXPECT_EQ(manifest.tensors[0].slices,
            (std::vector<Slice>{{0, box({0, 4}, {0, 2}), "c1"}, {0, box({1, 2}, {2, 6}), "c2"}}));
  EXPECT_EQ(manifest.tensors[1].slices, (std::vector<Slice>{{0, box({2, 5}), "c0"}, {1, box({5, 8}), "c3"}}));
  EXPECT_THROW(add_shards(manifest, {slices()}, {first, second}), InternalError);
  EXPECT_THROW(add_shards(manifest, {rest}, {first}), InternalError);
  EXPECT_THROW(add_shards(manifest, {{{2, box({5, 8})}}}, {second}), InternalError);
}

}  // namespace
}  // namespace trireme::checkpoint
