#include "checkpoint/safetensors.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include <gtest/gtest.h>

#include "base/fake_env.h"
#include "base/json.h"
#include "base/random.h"
#include "checkpoint/safetensors_writer.h"

namespace trireme::checkpoint {
namespace {

std::string with_length(std::string_view header) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(header.size() >> (8 * i));
  return bytes + std::string(header);
}

std::string file_of(std::string_view header, std::size_t data_bytes) {
  return with_length(header) + std::string(data_bytes, '\1');
}

// The refusal of a file of these bytes, or "accepted".
std::string refusal(const std::string& bytes) {
  FakeEnv env;
  env.put_file("m.safetensors", bytes);
  const auto result = SafetensorsReader::open(env, "m.safetensors");
  if (result.ok()) return "accepted";
  EXPECT_EQ(result.failure().code, ExitCode::kStorage);
  return result.failure().sentence();
}

std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return std::string(error.what()) + " | " + error.hint();
  }
  return "no error";
}

// A tensor whose element i is i, in the given type.
void write_counting(FakeEnv& env, const std::string& path, DType dtype, const std::vector<std::int64_t>& shape) {
  std::int64_t elements = 1;
  for (const std::int64_t size : shape) elements *= size;
  std::vector<float> values(static_cast<std::size_t>(elements));
  std::iota(values.begin(), values.end(), 0.0f);
  SafetensorsWriter writer(env, path, {{"first", DType::kF32, {3}}, {"w", dtype, shape}});
  writer.write_floats("first", std::vector<float>{7, 8, 9});
  writer.write_floats("w", values);
  writer.finish();
}

// What read_slice must give for a counting tensor, element by element.
std::vector<float> expected_slice(const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& begin,
                                  const std::vector<std::int64_t>& extent) {
  std::int64_t count = 1;
  for (const std::int64_t size : extent) count *= size;
  std::vector<float> values;
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t rest = i;
    std::int64_t element = 0;
    std::int64_t stride = 1;
    for (std::size_t d = shape.size(); d-- > 0;) {
      element += (begin[d] + rest % extent[d]) * stride;
      rest /= extent[d];
      stride *= shape[d];
    }
    values.push_back(static_cast<float>(element));
  }
  return values;
}

TEST(SafetensorsReaderTest, ReadsAFileWrittenByHand) {
  FakeEnv env;
  std::string bytes =
      with_length(R"({"b":{"dtype":"I64","shape":[],"data_offsets":[8,16]},"__metadata__":{"format":"pt"},)"
                  R"("a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
                  R"("e":{"dtype":"U8","shape":[0,3],"data_offsets":[16,16]}}  )");
  const float values[2] = {1.5f, -2.0f};
  const std::int64_t number = 42;
  bytes.append(reinterpret_cast<const char*>(values), 8);
  bytes.append(reinterpret_cast<const char*>(&number), 8);
  env.put_file("m.safetensors", bytes);
  const SafetensorsReader reader = SafetensorsReader::open(env, "m.safetensors").or_throw();
  ASSERT_EQ(reader.tensors().size(), 3u);
  EXPECT_EQ(reader.tensors()[0].name, "a");
  EXPECT_EQ(reader.tensors()[1].name, "b");
  EXPECT_EQ(reader.metadata(), (Metadata{{"format", "pt"}}));
  EXPECT_EQ(reader.files(), (std::vector<std::string>{"m.safetensors"}));
  const StoredTensor* e = reader.find("e");
  ASSERT_NE(e, nullptr);
  EXPECT_EQ(e->type, "U8");
  EXPECT_FALSE(e->dtype.has_value());
  EXPECT_EQ(e->elements(), 0);
  EXPECT_EQ(reader.find("b")->dtype, DType::kI64);
  EXPECT_EQ(reader.find("none"), nullptr);
  std::vector<float> out(2);
  reader.read_all("a", out);
  EXPECT_EQ(out, (std::vector<float>{1.5f, -2.0f}));
  std::int64_t raw = 0;
  reader.read_raw("b", 0, std::as_writable_bytes(std::span(&raw, 1)));
  EXPECT_EQ(raw, 42);
  reader.read_raw("e", 0, {});
}

TEST(SafetensorsReaderTest, ScalarsAreSlicesWithoutDimensions) {
  FakeEnv env;
  write_counting(env, "m.safetensors", DType::kF32, {});
  const SafetensorsReader reader = SafetensorsReader::open(env, "m.safetensors").or_throw();
  std::vector<float> out{5.0f};
  reader.read_all("w", out);
  EXPECT_EQ(out[0], 0.0f);
  EXPECT_NE(message_of([&] { reader.read_rows("w", 0, 1, out); }).find("scalar"), std::string::npos);
}

TEST(SafetensorsReaderTest, SlicesOfEveryDimensionAndType) {
  const std::vector<std::vector<std::int64_t>> shapes{{12}, {6, 10}, {1, 16}, {16, 1}, {4, 3, 5}, {2, 3, 2, 4}};
  std::uint64_t draws = 0;
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const auto& shape : shapes) {
      FakeEnv env;
      write_counting(env, "m.safetensors", dtype, shape);
      const SafetensorsReader reader = SafetensorsReader::open(env, "m.safetensors").or_throw();
      for (int attempt = 0; attempt < 50; ++attempt) {
        std::vector<std::int64_t> begin;
        std::vector<std::int64_t> extent;
        for (const std::int64_t size : shape) {
          begin.push_back(random_bits({1, 2}, ++draws) % (size + 1));
          extent.push_back(random_bits({1, 2}, ++draws) % (size - begin.back() + 1));
        }
        const std::vector<float> expected = expected_slice(shape, begin, extent);
        std::vector<float> out(expected.size(), -1.0f);
        reader.read_slice("w", begin, extent, out);
        ASSERT_EQ(out, expected);
      }
    }
  }
}

TEST(SafetensorsReaderTest, RowsAndColumnsOfAMatrix) {
  FakeEnv env;
  write_counting(env, "m.safetensors", DType::kF32, {4, 3});
  const SafetensorsReader reader = SafetensorsReader::open(env, "m.safetensors").or_throw();
  std::vector<float> rows(6);
  reader.read_rows("w", 1, 2, rows);
  EXPECT_EQ(rows, (std::vector<float>{3, 4, 5, 6, 7, 8}));
  std::vector<float> columns(8);
  reader.read_slice("w", std::vector<std::int64_t>{0, 1}, std::vector<std::int64_t>{4, 2}, columns);
  EXPECT_EQ(columns, (std::vector<float>{1, 2, 4, 5, 7, 8, 10, 11}));
}

// Larger than the window that slices are read through, and rows farther apart than what one read bridges.
TEST(SafetensorsReaderTest, LargeTensors) {
  FakeEnv env;
  const std::vector<std::int64_t> shape{300, 8000};  // 9.6 MB, exact in float32
  write_counting(env, "m.safetensors", DType::kF32, shape);
  const SafetensorsReader reader = SafetensorsReader::open(env, "m.safetensors").or_throw();
  const std::vector<std::pair<std::vector<std::int64_t>, std::vector<std::int64_t>>> slices{{{0, 0}, {300, 8000}},
                                                                                            {{10, 0}, {200, 8000}},
                                                                                            {{0, 1}, {300, 10}},
                                                                                            {{0, 1000}, {300, 7000}},
                                                                                            {{3, 0}, {150, 7999}}};
  for (const auto& [begin, extent] : slices) {
    std::vector<float> out(static_cast<std::size_t>(extent[0] * extent[1]));
    reader.read_slice("w", begin, extent, out);
    EXPECT_TRUE(out == expected_slice(shape, begin, extent));
  }
}

TEST(SafetensorsReaderTest, OnlyTheRowsNeededAreRead) {
  FakeEnv env;
  write_counting(env, "m.safetensors", DType::kF32, {64, 8192});
  const SafetensorsReader reader = SafetensorsReader::open(env, "m.safetensors").or_throw();
  std::vector<float> out(64);
  env.fail_operation(0);
  reader.read_slice("w", std::vector<std::int64_t>{0, 5}, std::vector<std::int64_t>{64, 1}, out);
  EXPECT_EQ(env.operations(), 64);  // rows are 32 KiB apart: one small read each
  env.fail_operation(0);
  std::vector<float> row(8192);
  reader.read_rows("w", 5, 1, row);
  EXPECT_EQ(env.operations(), 1);
}

TEST(SafetensorsReaderTest, WrongAsksAreErrors) {
  FakeEnv env;
  std::string bytes = with_length(R"({"layer.weight":{"dtype":"F64","shape":[2,1],"data_offsets":[0,16]},)"
                                  R"("w":{"dtype":"F32","shape":[2,3],"data_offsets":[16,40]}})");
  env.put_file("m.safetensors", bytes + std::string(40, '\0'));
  const SafetensorsReader reader = SafetensorsReader::open(env, "m.safetensors").or_throw();
  std::vector<float> out(2);
  const auto slice = [&](const std::string& name, std::vector<std::int64_t> begin, std::vector<std::int64_t> extent) {
    return message_of([&] { reader.read_slice(name, begin, extent, out); });
  };
  EXPECT_EQ(slice("layer.weigth", {0, 0}, {2, 1}),
            "checkpoint: read a slice of \"layer.weigth\": m.safetensors has no such tensor | the nearest name is "
            "\"layer.weight\"");
  EXPECT_NE(slice("layer.weight", {0, 0}, {2, 1}).find("F64 is not read as float32"), std::string::npos);
  EXPECT_NE(slice("w", {1, 0}, {2, 1}).find("[2, 1] from [1, 0] is not inside the shape [2, 3]"), std::string::npos);
  EXPECT_NE(slice("w", {0}, {2}).find("not inside"), std::string::npos);
  EXPECT_NE(slice("w", {0, -1}, {2, 1}).find("not inside"), std::string::npos);
  EXPECT_NE(slice("w", {0, 0}, {2, -1}).find("not inside"), std::string::npos);
  EXPECT_NE(slice("w", {0, 4}, {2, 0}).find("not inside"), std::string::npos);
  EXPECT_NE(message_of([&] { reader.read_rows("w", 1, 2, out); }).find("not inside"), std::string::npos);
  EXPECT_THROW(reader.read_all("w", out), InternalError);  // out is too small
  std::vector<std::byte> raw(8);
  EXPECT_NE(message_of([&] { reader.read_raw("w", 17, raw); }).find("8 bytes from 17"), std::string::npos);
  EXPECT_NE(message_of([&] { reader.read_raw("w", -1, raw); }).find("not inside"), std::string::npos);
  env.fail_operation(1);
  EXPECT_NE(message_of([&] { reader.read_raw("w", 0, raw); }).find("Input/output error"), std::string::npos);
}

TEST(SafetensorsHeaderTest, EachBrokenHeaderIsRefusedByName) {
  const auto entry = [](const std::string& text) { return R"({"w":)" + text + "}"; };
  const struct {
    std::string bytes;
    std::string reason;
  } cases[] = {
      {"", "truncated: 0 bytes"},
      {"1234567", "truncated: 7 bytes"},
      {std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10), "beyond the limit of 100,000,000"},
      {std::string("\x01\xe1\xf5\x05\0\0\0\0{}", 10), "header of 100000001 bytes is beyond"},
      {std::string("\x03\0\0\0\0\0\0\0{}", 10), "truncated: the header has 3 bytes, the file 10"},
      {with_length(""), "does not begin with {"},
      {with_length(" {}"), "does not begin with {"},
      {with_length("[]"), "does not begin with {"},
      {with_length("{"), "(header): line 1, column"},
      {with_length("{} x"), "(header): line 1, column"},
      {with_length(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":{}})"), "duplicate key \"a\""},
      {with_length(R"({"__metadata__":3})"), "__metadata__ must be an object of texts"},
      {with_length(R"({"__metadata__":{"a":3}})"), "__metadata__ must be an object of texts"},
      {with_length(entry("3")), "tensor \"w\": its entry must be an object"},
      {with_length(entry(R"({"shape":[1],"data_offsets":[0,4]})")), "dtype must be a text"},
      {with_length(entry(R"({"dtype":"F99","shape":[1],"data_offsets":[0,4]})")), "dtype \"F99\" is not known"},
      {with_length(entry(R"({"dtype":"F32","shape":1,"data_offsets":[0,4]})")), "shape must be a list"},
      {with_length(entry(R"({"dtype":"F32","shape":[-1],"data_offsets":[0,4]})")), "shape must be a list"},
      {with_length(entry(R"({"dtype":"F32","shape":[1.0],"data_offsets":[0,4]})")), "shape must be a list"},
      {with_length(entry(R"({"dtype":"F32","shape":[1]})")), "data_offsets must be two"},
      {with_length(entry(R"({"dtype":"F32","shape":[1],"data_offsets":[4]})")), "data_offsets must be two"},
      {with_length(entry(R"({"dtype":"F32","shape":[1],"data_offsets":[4,0]})")), "data_offsets must be two"},
      {with_length(entry(R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]})")),
       "shape [4294967296, 4294967296] is beyond 2^63 bytes"},
      {file_of(entry(R"({"dtype":"F32","shape":[2,2],"data_offsets":[0,12]})"), 12),
       "holds 12 bytes, but F32 [2, 2] needs 16"},
      {file_of(entry(R"({"dtype":"F32","shape":[1],"data_offsets":[4,8]})"), 8),
       "tensor \"w\" begins at byte 4 of the data, the one before ends at 0: a hole"},
      {file_of(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
               R"("b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})",
               6),
       "tensor \"b\" begins at byte 2 of the data, the one before ends at 4: an overlap"},
      {file_of(entry(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]})"), 3),
       "truncated: the tensors need 4 bytes, the file has 3"},
      {file_of(entry(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]})"), 5), "1 bytes follow the last tensor"},
  };
  for (const auto& broken : cases) {
    const std::string sentence = refusal(broken.bytes);
    EXPECT_NE(sentence.find(broken.reason), std::string::npos) << sentence << "\n  expected: " << broken.reason;
    EXPECT_NE(sentence.find("m.safetensors"), std::string::npos) << sentence;
  }
  EXPECT_EQ(refusal(with_length("{}")), "accepted");
  EXPECT_EQ(refusal(with_length(R"({"z":{"dtype":"F32","shape":[0,4611686018427387904,8],"data_offsets":[0,0]}})")),
            "accepted");
}

TEST(SafetensorsHeaderTest, EmptySlicesOfHugeEmptyTensors) {
  FakeEnv env;
  env.put_file("m.safetensors",
               with_length(R"({"z":{"dtype":"F32","shape":[0,4611686018427387904,8],"data_offsets":[0,0]}})"));
  const SafetensorsReader reader = SafetensorsReader::open(env, "m.safetensors").or_throw();
  EXPECT_NO_THROW(reader.read_all("z", {}));
}

// Damage anywhere is refused or changes values only: never a crash, never a read outside the file.
TEST(SafetensorsHeaderTest, RandomDamageNeverCrashes) {
  FakeEnv env;
  write_counting(env, "m.safetensors", DType::kBF16, {6, 7});
  const std::string good = env.content("m.safetensors");
  const RandomKey key{2024, stream_of("damage", 0)};
  int refused = 0;
  for (std::uint64_t i = 0; i < 2000; ++i) {
    std::string bad = good;
    const std::uint64_t changes = 1 + random_bits(key, 16 * i) % 4;
    for (std::uint64_t c = 0; c < changes; ++c) {
      const std::uint32_t where = random_bits(key, 16 * i + 3 * c + 1);
      const std::uint32_t what = random_bits(key, 16 * i + 3 * c + 2);
      const std::size_t at = where % bad.size();
      switch (what % 4) {
        case 0:
          bad[at] = static_cast<char>(bad[at] ^ (1 << (what / 4 % 8)));
          break;
        case 1:
          bad[at] = "0123456789{}[]\",:"[what / 4 % 17];
          break;
        case 2:
          bad.erase(at, 1 + what / 4 % 8);
          break;
        default:
          bad.insert(at, 1, bad[what / 4 % bad.size()]);
      }
      if (bad.empty()) bad = "x";
    }
    env.put_file("m.safetensors", bad);
    const auto result = SafetensorsReader::open(env, "m.safetensors");
    if (!result.ok()) {
      ++refused;
      EXPECT_EQ(result.failure().code, ExitCode::kStorage);
      continue;
    }
    for (const StoredTensor& tensor : result->tensors()) {
      ASSERT_LE(tensor.end, static_cast<std::int64_t>(bad.size()));
      std::vector<std::byte> raw(static_cast<std::size_t>(tensor.bytes()));
      result->read_raw(tensor.name, 0, raw);
      if (!tensor.dtype || !converts_to_f32(*tensor.dtype)) continue;
      std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
      result->read_all(tensor.name, values);
    }
  }
  EXPECT_GT(refused, 1000);
  for (std::size_t length = 0; length < good.size(); ++length) {
    EXPECT_NE(refusal(good.substr(0, length)), "accepted") << length;
  }
}

// --- Models in several files ---

void write_one(FakeEnv& env, const std::string& path, const std::string& tensor, float value) {
  SafetensorsWriter writer(env, path, {{tensor, DType::kF32, {1}}});
  writer.write_floats(tensor, std::vector<float>{value});
  writer.finish();
}

class ShardedModel : public testing::Test {
 protected:
  ShardedModel() {
    env_.make_directories("d");
    write_one(env_, "d/1.safetensors", "a", 1.0f);
    write_one(env_, "d/2.safetensors", "b", 2.0f);
    put_index(R"({"a":"1.safetensors","b":"2.safetensors"})");
  }
  void put_index(const std::string& weight_map) {
    env_.put_file("d/model.safetensors.index.json", R"({"metadata":{"total_size":8},"weight_map":)" + weight_map + "}");
  }
  std::string refused() {
    const auto result = SafetensorsReader::open(env_, "d");
    return result.ok() ? "accepted" : result.failure().sentence();
  }
  FakeEnv env_;
};

TEST_F(ShardedModel, IsReadThroughItsIndex) {
  for (const char* path : {"d", "d/model.safetensors.index.json"}) {
    const SafetensorsReader reader = SafetensorsReader::open(env_, path).or_throw();
    EXPECT_EQ(reader.files(), (std::vector<std::string>{"d/1.safetensors", "d/2.safetensors"}));
    std::vector<float> value(1);
    reader.read_all("b", value);
    EXPECT_EQ(value[0], 2.0f);
    EXPECT_EQ(reader.find("b")->file, 1u);
  }
}

TEST_F(ShardedModel, ADirectoryWithOneFileNeedsNoIndex) {
  write_one(env_, "d/model.safetensors", "c", 3.0f);
  const SafetensorsReader reader = SafetensorsReader::open(env_, "d").or_throw();
  EXPECT_EQ(reader.tensors().size(), 1u);
  EXPECT_NE(reader.find("c"), nullptr);
}

TEST_F(ShardedModel, AnIndexThatDoesNotAgreeIsRefused) {
  put_index(R"({"a":"1.safetensors","b":"1.safetensors"})");
  EXPECT_NE(refused().find("tensor \"b\" is not in 1.safetensors"), std::string::npos) << refused();
  put_index(R"({"a":"1.safetensors","b":"3.safetensors"})");
  EXPECT_NE(refused().find("there is no file d/3.safetensors"), std::string::npos) << refused();
  put_index(R"({"a":"1.safetensors","b":"../d/2.safetensors"})");
  EXPECT_NE(refused().find("must name a file beside the index"), std::string::npos) << refused();
  put_index(R"({"a":1})");
  EXPECT_NE(refused().find("must name a file"), std::string::npos) << refused();
  put_index("3");
  EXPECT_NE(refused().find("weight_map must be an object"), std::string::npos) << refused();
  put_index("{");
  EXPECT_NE(refused().find("line 1, column"), std::string::npos) << refused();
  write_one(env_, "d/2.safetensors", "a", 2.0f);
  put_index(R"({"a":"1.safetensors","b":"2.safetensors"})");
  EXPECT_NE(refused().find("tensor \"a\" is in d/1.safetensors too"), std::string::npos) << refused();
}

TEST_F(ShardedModel, ATensorThatTheIndexLeavesOutIsRefused) {
  SafetensorsWriter writer(env_, "d/2.safetensors", {{"b", DType::kF32, {0}}, {"extra", DType::kF32, {0}}});
  writer.finish();
  EXPECT_NE(refused().find("weight_map does not list tensor \"extra\" of d/2.safetensors"), std::string::npos)
      << refused();
}

TEST_F(ShardedModel, ABrokenShardIsNamed) {
  env_.put_file("d/2.safetensors", "short");
  EXPECT_NE(refused().find("d/2.safetensors: truncated"), std::string::npos) << refused();
}

TEST(SafetensorsReaderTest, NothingThere) {
  FakeEnv env;
  env.make_directories("d");
  const auto result = SafetensorsReader::open(env, "d");
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.failure().sentence().find("has neither model.safetensors nor"), std::string::npos);
  EXPECT_THROW(static_cast<void>(SafetensorsReader::open(env, "absent.safetensors")), Error);
}

}  // namespace
}  // namespace trireme::checkpoint
