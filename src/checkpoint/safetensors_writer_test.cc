#include "checkpoint/safetensors_writer.h"

#include <cstring>

#include <gtest/gtest.h>

#include "base/fake_env.h"

namespace trireme::checkpoint {
namespace {

std::span<const std::byte> bytes_of(const std::vector<std::int32_t>& values) {
  return std::as_bytes(std::span(values));
}

TEST(SafetensorsWriterTest, TheBytesOfASmallFile) {
  FakeEnv env;
  SafetensorsWriter writer(env, "m.safetensors", {{"w", DType::kF32, {1, 2}}});
  writer.write_floats("w", std::vector<float>{1.0f, 2.0f});
  EXPECT_FALSE(env.exists("m.safetensors"));
  writer.finish();
  const std::string content = env.content("m.safetensors");
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]}})";
  const std::size_t padded = (header.size() + 7) / 8 * 8;
  EXPECT_EQ(static_cast<unsigned char>(content[0]), padded);
  EXPECT_EQ(content.substr(8, padded), header + std::string(padded - header.size(), ' '));
  EXPECT_EQ(content.substr(8 + padded), std::string("\0\0\x80\x3f\0\0\0\x40", 8));
}

TEST(SafetensorsWriterTest, RoundTripInPiecesAndAnyOrder) {
  FakeEnv env;
  std::vector<float> values(1000000);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 512) - 100.5f;
  const std::vector<std::int32_t> ids{1, -2, 3};
  SafetensorsWriter writer(env, "m.safetensors",
                           {{"half", DType::kBF16, {3}},
                            {"big", DType::kF32, {1000, 1000}},
                            {"ids", DType::kI32, {3}},
                            {"empty", DType::kF64, {0, 5}},
                            {"f16", DType::kF16, {1000, 500}}},
                           {{"format", "pt"}, {"step", "12"}});
  writer.write("ids", bytes_of(ids).first(5));
  writer.write_floats("big", std::span<const float>(values).first(123456));
  writer.write_floats("half", std::vector<float>{1.0f, 1.00390625f, 3.0f});
  writer.write("ids", bytes_of(ids).subspan(5));
  writer.write_floats("big", std::span<const float>(values).subspan(123456));
  writer.write_floats("f16", std::span<const float>(values).first(500000));
  writer.finish();

  const SafetensorsReader reader = SafetensorsReader::open(env, "m.safetensors").or_throw();
  EXPECT_EQ(reader.metadata(), (Metadata{{"format", "pt"}, {"step", "12"}}));
  std::vector<std::string> order;
  for (const StoredTensor& tensor : reader.tensors()) {
    order.push_back(tensor.name);
    EXPECT_EQ(tensor.begin % dtype_size(*tensor.dtype), 0) << tensor.name;
  }
  EXPECT_EQ(order, (std::vector<std::string>{"empty", "big", "ids", "half", "f16"}));
  std::vector<float> back(values.size());
  reader.read_all("big", back);
  EXPECT_TRUE(back == values);
  std::vector<float> half(3);
  reader.read_all("half", half);
  EXPECT_EQ(half, (std::vector<float>{1.0f, 1.0f, 3.0f}));  // the middle one was a tie
  back.resize(500000);
  reader.read_all("f16", back);
  EXPECT_TRUE(std::equal(back.begin(), back.end(), values.begin()));
  std::vector<std::int32_t> ids_back(3);
  reader.read_raw("ids", 0, std::as_writable_bytes(std::span(ids_back)));
  EXPECT_EQ(ids_back, ids);
}

TEST(SafetensorsWriterTest, MisuseIsABrokenInvariant) {
  FakeEnv env;
  const std::vector<float> two(2);
  EXPECT_THROW(SafetensorsWriter(env, "x", {{"a", DType::kF32, {1}}, {"a", DType::kF32, {1}}}), InternalError);
  EXPECT_THROW(SafetensorsWriter(env, "x", {{"__metadata__", DType::kF32, {1}}}), InternalError);
  EXPECT_THROW(SafetensorsWriter(env, "x", {{"a", DType::kF32, {-1}}}), InternalError);
  EXPECT_THROW(SafetensorsWriter(env, "x", {{"a", DType::kF32, {std::int64_t{1} << 62}}}), InternalError);
  SafetensorsWriter writer(env, "x", {{"a", DType::kF32, {1}}, {"n", DType::kI32, {2}}});
  EXPECT_THROW(writer.write_floats("a", two), InternalError);
  EXPECT_THROW(writer.write_floats("b", two), InternalError);
  EXPECT_THROW(writer.write_floats("n", two), InternalError);
  EXPECT_THROW(writer.finish(), InternalError);
  EXPECT_FALSE(env.exists("x"));
}

TEST(SafetensorsWriterTest, WithoutFinishNothingIsLeft) {
  FakeEnv env;
  env.make_directories("d");
  { SafetensorsWriter writer(env, "d/x", {{"a", DType::kF32, {1}}}); }
  EXPECT_TRUE(env.list_directory("d").empty());
}

// Whatever operation fails, and whether or not the power goes then: the old file or the new one, whole.
TEST(SafetensorsWriterTest, AtomicAtEveryOperation) {
  const auto write = [](Env& env, float value) {
    SafetensorsWriter writer(env, "d/x", {{"a", DType::kF32, {1}}});
    writer.write_floats("a", std::vector<float>{value});
    writer.finish();
  };
  FakeEnv counting;
  counting.make_directories("d");
  counting.fail_operation(0);
  write(counting, 1.0f);
  const std::int64_t operations = counting.operations();
  for (const bool power_loss : {false, true}) {
    for (std::int64_t n = 1; n <= operations; ++n) {
      FakeEnv env;
      env.make_directories("d");
      env.sync_directory(".");
      write(env, 1.0f);
      env.fail_from_operation(n);
      EXPECT_THROW(write(env, 2.0f), Error) << n;
      env.fail_operation(0);
      if (power_loss) env.lose_power();
      const SafetensorsReader reader = SafetensorsReader::open(env, "d/x").or_throw();
      std::vector<float> value(1);
      reader.read_all("a", value);
      EXPECT_TRUE(value[0] == 1.0f || value[0] == 2.0f) << n;
    }
  }
}

TEST(SafetensorsWriterTest, AFullDiskIsAStorageFailure) {
  FakeEnv env;
  env.limit_bytes(150);
  SafetensorsWriter writer(env, "x", {{"a", DType::kF32, {100}}});
  try {
    writer.write_floats("a", std::vector<float>(100));
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kStorage);
  }
}

}  // namespace
}  // namespace trireme::checkpoint
