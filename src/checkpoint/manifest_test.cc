#include "checkpoint/manifest.h"

#include <algorithm>
#include <functional>
#include <limits>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/check.h"
#include "checkpoint/checksum.h"

namespace trireme::checkpoint {
namespace {

using plan::StateKind;
using testing::HasSubstr;

constexpr const char* kPath = "run/checkpoints/step-00000040/manifest.json";

// A matrix of two slices in two files and a vector.
Manifest small_manifest() {
  Manifest manifest;
  manifest.progress = {40, 320, 40960, 2, 1, 12.25};
  manifest.reason = "interval";
  manifest.saved_at = "2020-01-02T03:04:05Z";
  manifest.program = "trireme 0.1.0";
  manifest.layout = "tp 1, pp 1, dp 2";
  manifest.model = *parse_json(R"({"model_type": "llama", "rms_norm_eps": 1e-05, "sizes": [1, [2, 3]]})", "m");
  manifest.run = Json::object({{"train", Json::object({{"steps", 50}, {"name", "a \"b\"\n\\ \x01 \xC3\xA9"}})}});
  manifest.data = Json::object({{"tokens", std::numeric_limits<std::int64_t>::max()}});
  manifest.scaler = Json::object({{"scale", 65536.0}});
  manifest.files = {{"part-00000.safetensors", 400, checksum_of("a")},
                    {"part-00001.safetensors", 300, checksum_of("b")}};
  manifest.tensors = {{"a.weight",
                       StateKind::kWeight,
                       {4, 6},
                       DType::kF32,
                       {{0, {{0, 4}, {0, 2}}, checksum_of("c")}, {1, {{0, 4}, {2, 6}}, checksum_of("d")}}},
                      {"b", StateKind::kSecondMoment, {5}, DType::kBF16, {{1, {{0, 5}, {0, 1}}, checksum_of("e")}}}};
  return manifest;
}

std::string refusal(std::string_view text) {
  const Result<Manifest> result = parse_manifest(text, kPath);
  if (result.ok()) return "accepted";
  EXPECT_EQ(result.failure().code, ExitCode::kStorage);
  EXPECT_EQ(result.failure().option, kPath);
  return result.failure().sentence();
}

// The refusal of a manifest that was changed before its checksum was taken.
std::string refusal_of(const std::function<void(Manifest&)>& change) {
  Manifest manifest = small_manifest();
  change(manifest);
  return refusal(to_text(manifest));
}

// The same of its text.
std::string refusal_with(const std::string& from, const std::string& to) {
  std::string text = to_text(small_manifest());
  text.resize(text.rfind("  \"checksum\""));
  const std::size_t at = text.find(from);
  TRIREME_CHECK(at != std::string::npos, "{} is not in the text", from);
  text.replace(at, from.size(), to);
  return refusal(text + "  \"checksum\": \"" + checksum_of(text) + "\"\n}\n");
}

TEST(ChecksumTest, IsXxh3InCanonicalForm) {
  EXPECT_EQ(checksum_of(""), "99aa06d3014798d86001c324468d497f");  // the specification's value of nothing
  EXPECT_EQ(checksum_of("abc"), checksum_of(std::as_bytes(std::span("abc", 3))));
  EXPECT_NE(checksum_of("abc"), checksum_of("abd"));
}

TEST(ManifestTest, TextIsReadable) {
  Manifest manifest = small_manifest();
  manifest.model = Json::object({{"layers", 2}});
  manifest.run = manifest.data = Json::object();
  manifest.scaler = nullptr;
  const std::string c = checksum_of("c"), d = checksum_of("d"), e = checksum_of("e");
  const std::string body = R"({
  "format": "trireme-checkpoint",
  "version": 1,
  "progress": {
    "step": 40,
    "samples": 320,
    "tokens": 40960,
    "incarnation": 2,
    "failures": 1,
    "elapsed_s": 12.25
  },
  "reason": "interval",
  "saved_at": "2020-01-02T03:04:05Z",
  "program": "trireme 0.1.0",
  "layout": "tp 1, pp 1, dp 2",
  "model": {
    "layers": 2
  },
  "run": {},
  "data": {},
  "scaler": null,
  "files": [
    {"name": "part-00000.safetensors", "bytes": 400, "header_checksum": ")" +
                           checksum_of("a") + R"("},
    {"name": "part-00001.safetensors", "bytes": 300, "header_checksum": ")" +
                           checksum_of("b") + R"("}
  ],
  "tensors": [
    {"name": "a.weight", "kind": "weight", "dtype": "F32", "shape": [4, 6], "slices": [
      [0, [0, 4, 0, 2], ")" +
                           c + R"("],
      [1, [0, 4, 2, 6], ")" +
                           d + R"("]
    ]},
    {"name": "b", "kind": "exp_avg_sq", "dtype": "BF16", "shape": [5], "slices": [
      [1, [0, 5], ")" + e + R"("]
    ]}
  ],
)";
  EXPECT_EQ(to_text(manifest), body + "  \"checksum\": \"" + checksum_of(body) + "\"\n}\n");
}

TEST(ManifestTest, IsReadAsItWasWritten) {
  for (const double elapsed : {0.0, 12.25, 0.1, 1e300, 1e-300, 1234567.891}) {
    Manifest manifest = small_manifest();
    manifest.progress.elapsed_s = elapsed;
    const std::string text = to_text(manifest);
    const Result<Manifest> read = parse_manifest(text, kPath);
    ASSERT_TRUE(read.ok()) << read.failure().sentence();
    EXPECT_EQ(*read, manifest);
    EXPECT_EQ(to_text(*read), text);
  }
  const Manifest empty;
  const Result<Manifest> read = parse_manifest(to_text(empty), kPath);
  ASSERT_TRUE(read.ok()) << read.failure().sentence();
  EXPECT_EQ(*read, empty);
}

TEST(ManifestTest, EveryBitIsGuarded) {
  const std::string text = to_text(small_manifest());
  const std::size_t end = text.rfind("  \"checksum\"");
  const std::size_t digits = end + std::string("  \"checksum\": \"").size();
  for (std::size_t at = 0; at < text.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string changed = text;
      changed[at] = static_cast<char>(changed[at] ^ (1 << bit));
      const std::string message = refusal(changed);
      ASSERT_THAT(message, HasSubstr(kPath)) << at << " " << bit;
      if (at < end) {
        const std::string found = checksum_of(std::string_view(changed).substr(0, end));
        ASSERT_THAT(message, HasSubstr("expected " + text.substr(digits, 32) + ", found " + found));
      } else if (at >= digits && at < digits + 32) {
        ASSERT_THAT(message,
                    HasSubstr("expected " + changed.substr(digits, 32) + ", found " + text.substr(digits, 32)));
      } else {
        ASSERT_THAT(message, HasSubstr("does not end with the line of its checksum"));
      }
    }
  }
}

TEST(ManifestTest, EveryLengthButItsOwnIsRefused) {
  const std::string text = to_text(small_manifest());
  for (std::size_t length = 0; length < text.size(); ++length) {
    ASSERT_THAT(refusal(text.substr(0, length)), HasSubstr(kPath)) << length;
  }
  for (const std::string more : {"\n", " ", "x"}) {
    EXPECT_THAT(refusal(text + more), HasSubstr("cut short, changed, or no manifest"));
  }
  EXPECT_NE(refusal(text + text), "accepted");
}

TEST(ManifestTest, AnotherVersionIsRefusedWithBothNumbers) {
  EXPECT_THAT(refusal_with("\"version\": 1", "\"version\": 3"),
              HasSubstr("version 3 of the format; this program reads versions 1 to 2"));
  EXPECT_THAT(refusal_with("\"version\": 1", "\"version\": 2"), HasSubstr("\"model_files\" is missing"));
  EXPECT_THAT(refusal_with("\"version\": 1", "\"version\": 0"), HasSubstr("\"version\" is 0"));
  EXPECT_THAT(refusal_with("\"version\": 1", "\"version\": \"1\""), HasSubstr("type text, must be integer"));
  EXPECT_THAT(refusal_with("trireme-checkpoint", "other"), HasSubstr("not a checkpoint's manifest"));
}

TEST(ManifestTest, FilesOfTheModelMakeVersion2) {
  Manifest manifest = small_manifest();
  EXPECT_EQ(manifest.version(), 1);
  manifest.model_files = {{"generation_config.json", 0, checksum_of("")}, {"tokenizer.json", 12, checksum_of("x")}};
  EXPECT_EQ(manifest.version(), 2);
  const std::string text = to_text(manifest);
  EXPECT_THAT(text, HasSubstr("\"version\": 2"));
  EXPECT_THAT(
      text,
      HasSubstr("  \"model_files\": [\n    {\"name\": \"generation_config.json\", \"bytes\": 0, \"checksum\": \"" +
                checksum_of("") + "\"},\n    {\"name\": \"tokenizer.json\", \"bytes\": 12, \"checksum\": \"" +
                checksum_of("x") + "\"}\n  ],\n  \"run\""));
  EXPECT_EQ(parse_manifest(text, kPath).or_throw(), manifest);
  const auto refused = [&](auto change) {
    Manifest changed = manifest;
    change(changed.model_files);
    return refusal(to_text(changed));
  };
  EXPECT_THAT(refused([](auto& files) { files[0].name = "../x"; }), HasSubstr("must be the name of a file inside"));
  EXPECT_THAT(refused([](auto& files) { files[0].name = kManifestFile; }), HasSubstr("must be the name of a file"));
  EXPECT_THAT(refused([](auto& files) { files[1].name = files[0].name; }), HasSubstr("is named twice"));
  EXPECT_THAT(refused([&](auto& files) { files[1].name = manifest.files[0].name; }), HasSubstr("is named twice"));
  EXPECT_THAT(refused([](auto& files) { files[1].bytes = -1; }), HasSubstr("\"bytes\" is -1"));
  EXPECT_THAT(refused([](auto& files) { files[1].checksum = "0"; }), HasSubstr("checksum of 32"));
}

TEST(ManifestTest, AnotherFormIsRefused) {
  EXPECT_THAT(refusal_with("\"version\": 1", "\"version\":1"), HasSubstr("line 3 is not in the form"));
  EXPECT_THAT(refusal_with("  \"run\"", "  \"more\": 1,\n  \"run\""), HasSubstr("is not in the form"));
  EXPECT_THAT(refusal_with("12.25", "12.250"), HasSubstr("line 10 is not in the form"));
  EXPECT_THAT(refusal_with("12.25", "12"), HasSubstr("must be number"));
  EXPECT_THAT(refusal_with("\"a.weight\"", "\"\\u0061.weight\""), HasSubstr("is not in the form"));
  EXPECT_THAT(refusal_with("\"version\": 1,", "\"version\": 1,,"), HasSubstr("line 3"));
  EXPECT_THAT(refusal_with("\"reason\"", "\"step\""), HasSubstr("\"reason\" is missing"));
  EXPECT_THAT(refusal_with("\"step\": 40", "\"step\": 4.5"), HasSubstr("type number, must be integer"));
}

TEST(ManifestTest, ValuesAreChecked) {
  EXPECT_THAT(refusal_of([](Manifest& m) { m.progress.step = -1; }), HasSubstr("\"step\" is -1"));
  EXPECT_THAT(refusal_of([](Manifest& m) { m.progress.elapsed_s = -1; }), HasSubstr("\"elapsed_s\" is negative"));
  for (const std::string name : {"", ".", "..", "a/b", "../a", "/a", "manifest.json"}) {
    EXPECT_THAT(refusal_of([&](Manifest& m) { m.files[1].name = name; }),
                HasSubstr("files[1]: \"" + name + "\" must be"));
  }
  EXPECT_THAT(refusal_of([](Manifest& m) { m.files[1].name = m.files[0].name; }), HasSubstr("is named twice"));
  EXPECT_THAT(refusal_of([](Manifest& m) { m.files[0].bytes = -5; }), HasSubstr("\"bytes\" is -5"));
  EXPECT_THAT(refusal_of([](Manifest& m) { m.files[0].bytes = std::numeric_limits<std::int64_t>::max(); }),
              HasSubstr("sum to more than 2^63"));
  EXPECT_THAT(refusal_of([](Manifest& m) { m.files[0].bytes = 31; }), HasSubstr("file 0 is too small"));
  EXPECT_THAT(refusal_of([](Manifest& m) { m.files[0].header_checksum += "0"; }), HasSubstr("checksum of 32"));
  EXPECT_THAT(refusal_of([](Manifest& m) { m.tensors[1].name = ""; }), HasSubstr("it has no name"));
  EXPECT_THAT(refusal_of([](Manifest& m) { m.tensors.push_back(m.tensors[1]); }),
              HasSubstr("tensor exp_avg_sq/b: it is listed twice"));
  EXPECT_THAT(refusal_with("exp_avg_sq", "exp_avg_cube"), HasSubstr("its kind is none of"));
  EXPECT_THAT(refusal_with("BF16", "F17"), HasSubstr("F17"));
  for (const std::string shape : {"[]", "[0]", "[5, 1, 1]", "[5.0]", "[4611686018427387904]"}) {
    EXPECT_THAT(refusal_with("\"shape\": [5]", "\"shape\": " + shape), HasSubstr("its shape must be")) << shape;
  }
}

TEST(ManifestTest, SlicesAreChecked) {
  EXPECT_THAT(refusal_of([](Manifest& m) { m.tensors[1].slices[0].file = 2; }), HasSubstr("one of the 2 listed"));
  EXPECT_THAT(refusal_of([](Manifest& m) { m.tensors[1].slices[0].file = -1; }), HasSubstr("one of the 2 listed"));
  EXPECT_THAT(refusal_of([](Manifest& m) { m.tensors[1].slices[0].checksum = std::string(32, 'A'); }),
              HasSubstr("its last item must be a checksum"));
  for (const std::string box : {"[0, 6]", "[-1, 5]", "[3, 3]", "[4, 3]", "[0]", "[0, 5, 0, 1]", "7"}) {
    EXPECT_THAT(refusal_with("[0, 5]", box), HasSubstr("its box is not a part of the tensor")) << box;
  }
  EXPECT_THAT(refusal_with("[1, [0, 5], ", "[1, "), HasSubstr("must be [file, [rows, columns], \"checksum\"]"));
  EXPECT_THAT(refusal_with("[1, [0, 5], ", "[\"1\", [0, 5], "), HasSubstr("its file must be"));
}

TEST(ManifestTest, SlicesCoverTheirTensorExactly) {
  EXPECT_THAT(refusal_of([](Manifest& m) { m.tensors[1].slices.clear(); }),
              HasSubstr("no slice holds row 0, column 0"));
  EXPECT_THAT(refusal_of([](Manifest& m) { m.tensors[0].slices.pop_back(); }),
              HasSubstr("no slice holds row 0, column 2"));
  EXPECT_THAT(refusal_of([](Manifest& m) { m.tensors[0].slices[1].box.rows.end = 3; }),
              HasSubstr("no slice holds row 3, column 2"));
  EXPECT_THAT(refusal_of([](Manifest& m) { m.tensors[1].slices[0].box.rows.end = 4; }),
              HasSubstr("tensor exp_avg_sq/b: no slice holds row 4, column 0"));
  EXPECT_THAT(refusal_of([](Manifest& m) { m.tensors[0].slices[1].box.columns.begin = 1; }),
              HasSubstr("slices weight/a.weight/0:4,0:2 and weight/a.weight/0:4,1:6 overlap"));
  EXPECT_THAT(refusal_of([](Manifest& m) { m.tensors[1].slices.push_back(m.tensors[1].slices[0]); }),
              HasSubstr("slices exp_avg_sq/b/0:5 and exp_avg_sq/b/0:5 overlap"));
  // As many elements as the tensor has, but a hole and an overlap.
  EXPECT_NE(refusal_of([](Manifest& m) { m.tensors[0].slices[0].box = {{0, 2}, {0, 4}}; }), "accepted");
}

// Cuts a box at random until it has `pieces`.
std::vector<plan::TensorBox> random_cut(std::int64_t rows, std::int64_t columns, std::size_t pieces,
                                        std::uint64_t seed) {
  std::uint64_t state = seed;
  const auto below = [&](std::int64_t n) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    return static_cast<std::int64_t>((state >> 33) % static_cast<std::uint64_t>(n));
  };
  std::vector<plan::TensorBox> boxes{{{0, rows}, {0, columns}}};
  while (boxes.size() < pieces) {
    plan::TensorBox& box = boxes[static_cast<std::size_t>(below(static_cast<std::int64_t>(boxes.size())))];
    plan::TensorBox other = box;
    const bool by_rows = below(2) == 0;
    plan::Interval& side = by_rows ? box.rows : box.columns;
    if (side.length() < 2) continue;
    const std::int64_t at = side.begin + 1 + below(side.length() - 1);
    side.end = at;
    (by_rows ? other.rows : other.columns).begin = at;
    boxes.push_back(other);
  }
  return boxes;
}

std::string refusal_of_boxes(std::int64_t rows, std::int64_t columns, const std::vector<plan::TensorBox>& boxes) {
  return refusal_of([&](Manifest& m) {
    m.files[0].bytes = std::int64_t{1} << 50;
    m.tensors[0].shape = {rows, columns};
    m.tensors[0].slices.clear();
    for (const plan::TensorBox& box : boxes) m.tensors[0].slices.push_back({0, box, checksum_of("x")});
  });
}

TEST(ManifestTest, AnyCutIsACoverAndNoOtherIs) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const std::vector<plan::TensorBox> boxes = random_cut(9, 11, 2 + seed % 20, seed);
    ASSERT_EQ(refusal_of_boxes(9, 11, boxes), "accepted");
    const std::size_t one = seed % boxes.size();
    std::vector<plan::TensorBox> without = boxes;
    without.erase(without.begin() + static_cast<std::ptrdiff_t>(one));
    const std::string hole =
        fmt::format("no slice holds row {}, column {}", boxes[one].rows.begin, boxes[one].columns.begin);
    EXPECT_THAT(refusal_of_boxes(9, 11, without), HasSubstr(hole));
    std::vector<plan::TensorBox> twice = boxes;
    twice.push_back({{boxes[one].rows.begin, boxes[one].rows.begin + 1}, boxes[one].columns});
    EXPECT_THAT(refusal_of_boxes(9, 11, twice), HasSubstr("overlap"));
  }
}

TEST(ManifestTest, ManySlicesAreReadAtOnce) {
  const std::vector<plan::TensorBox> boxes = random_cut(200'000, 50'000, 100'000, 1);
  EXPECT_EQ(refusal_of_boxes(200'000, 50'000, boxes), "accepted");
}

TEST(ManifestTest, KeysNameStateAndBox) {
  const Manifest manifest = small_manifest();
  EXPECT_EQ(slice_key(manifest.tensors[0], {{0, 4}, {2, 6}}), "weight/a.weight/0:4,2:6");
  EXPECT_EQ(slice_key(manifest.tensors[1], {{1, 3}, {0, 1}}), "exp_avg_sq/b/1:3");
}

TEST(ManifestTest, FindsATensorAndAddsUpItsFiles) {
  const Manifest manifest = small_manifest();
  EXPECT_EQ(manifest.find("b", StateKind::kSecondMoment), &manifest.tensors[1]);
  EXPECT_EQ(manifest.find("b", StateKind::kWeight), nullptr);
  EXPECT_EQ(manifest.bytes(), 700);
}

TEST(ManifestTest, ListsTheStatesOfAModel) {
  model::ParameterTable table;
  table.parameters.resize(2);
  table.parameters[0].name = "a";
  table.parameters[0].shape = {2, 3};
  table.parameters[1].name = "b";
  table.parameters[1].shape = {4};
  const std::vector<StoredState> states = states_of(table);
  ASSERT_EQ(states.size(), 6U);
  for (std::size_t i = 0; i < states.size(); ++i) {
    const StoredState wanted{
        i % 2 == 0 ? "a" : "b", plan::kStateKinds[i / 2], table.parameters[i % 2].shape, DType::kF32, {}};
    EXPECT_EQ(states[i], wanted);
  }
}

}  // namespace
}  // namespace trireme::checkpoint
