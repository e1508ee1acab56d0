#include "checkpoint/difference.h"

#include <bit>
#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/test_checkpoint.h"

namespace trireme::checkpoint {
namespace {

using plan::StateKind;
using testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// The handmade tensors, each in one slice of one file.
Manifest whole_manifest() {
  Manifest manifest = handmade_manifest();
  manifest.files = {{"all.safetensors", 0, ""}};
  for (StoredState& tensor : manifest.tensors) {
    tensor.slices = {{0, {{0, tensor.rows()}, {0, tensor.columns()}}, ""}};
  }
  return manifest;
}

std::vector<TensorDifference> difference_of(const Manifest& a, const ValueOf& value_a, const Manifest& b,
                                            const ValueOf& value_b) {
  FakeEnv env;
  put_checkpoint(env, "a", a, value_a);
  put_checkpoint(env, "b", b, value_b);
  return difference(Reader::open(env, "a").or_throw(), Reader::open(env, "b").or_throw());
}

std::string refusal_of(const Manifest& a, const Manifest& b) {
  try {
    difference_of(a, handmade_value, b, handmade_value);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    return error.what();
  }
  return "none";
}

TEST(UlpDistanceTest, CountsFloatsBetween) {
  EXPECT_EQ(ulp_distance(1.0F, 1.0F), 0U);
  EXPECT_EQ(ulp_distance(1.0F, std::nextafter(1.0F, 2.0F)), 1U);
  EXPECT_EQ(ulp_distance(std::nextafter(1.0F, 0.0F), std::nextafter(1.0F, 2.0F)), 2U);
  EXPECT_EQ(ulp_distance(-0.0F, 0.0F), 0U);
  const float smallest = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(ulp_distance(-smallest, smallest), 2U);
  EXPECT_EQ(ulp_distance(smallest, -0.0F), 1U);
  EXPECT_EQ(ulp_distance(std::numeric_limits<float>::max(), kInfinity), 1U);
  EXPECT_EQ(ulp_distance(-kInfinity, kInfinity), 0xFF000000U);
  EXPECT_EQ(ulp_distance(kNan, kInfinity), 0xFFFFFFFFU);
  EXPECT_EQ(ulp_distance(1.0F, -kNan), 0xFFFFFFFFU);
  EXPECT_EQ(ulp_distance(kNan, -kNan), 0U);
}

TEST(DifferenceTest, EqualStatesInOtherSlicesDoNotDiffer) {
  const auto differences = difference_of(handmade_manifest(), handmade_value, whole_manifest(), handmade_value);
  ASSERT_EQ(differences.size(), 6U);
  for (std::size_t i = 0; i < differences.size(); ++i) {
    EXPECT_EQ(differences[i].name, i % 2 == 0 ? "a.weight" : "b");
    EXPECT_EQ(differences[i].kind, plan::kStateKinds[i / 2]);
    EXPECT_EQ(differences[i].elements, i % 2 == 0 ? 24 : 5);
    EXPECT_EQ(differences[i].differing, 0);
    EXPECT_EQ(differences[i].largest_ulp, 0U);
    EXPECT_EQ(differences[i].first_row, -1);
    EXPECT_EQ(differences[i].first_column, -1);
  }
}

TEST(DifferenceTest, TellsHowManyHowFarAndWhere) {
  const ValueOf changed = [](const StoredState& tensor, std::int64_t row, std::int64_t column) {
    const float value = handmade_value(tensor, row, column);
    if (tensor.kind == StateKind::kFirstMoment && tensor.name == "a.weight") {
      if (row == 2 && column == 5) return std::nextafter(value, kInfinity);
      if (row == 3 && column == 0) return std::nextafter(std::nextafter(value, 0.0F), 0.0F);
    }
    if (tensor.kind == StateKind::kSecondMoment && tensor.name == "b" && row == 4) return kNan;
    return value;
  };
  const auto differences = difference_of(handmade_manifest(), handmade_value, whole_manifest(), changed);
  for (const std::size_t i : {0U, 1U, 3U, 4U}) EXPECT_EQ(differences[i].differing, 0) << i;
  const TensorDifference& moment = differences[2];
  EXPECT_EQ(moment.differing, 2);
  EXPECT_EQ(moment.largest_ulp, 2U);
  EXPECT_EQ(moment.first_row, 2);
  EXPECT_EQ(moment.first_column, 5);
  EXPECT_EQ(moment.first_a, 2125.0F);
  EXPECT_EQ(moment.first_b, std::nextafter(2125.0F, kInfinity));
  const TensorDifference& nan = differences[5];
  EXPECT_EQ(nan.differing, 1);
  EXPECT_EQ(nan.largest_ulp, 0xFFFFFFFFU);
  EXPECT_EQ(nan.first_row, 4);
  EXPECT_EQ(nan.first_column, 0);
  EXPECT_TRUE(std::isnan(nan.first_b));
}

TEST(DifferenceTest, BitsCountNotValues) {
  const ValueOf zero = [](const StoredState&, std::int64_t, std::int64_t) { return 0.0F; };
  const ValueOf minus_zero = [](const StoredState&, std::int64_t, std::int64_t) { return -0.0F; };
  const ValueOf nan = [](const StoredState&, std::int64_t, std::int64_t) { return kNan; };
  const ValueOf other_nan = [](const StoredState&, std::int64_t, std::int64_t) {
    return std::bit_cast<float>(0x7FC00001U);
  };
  for (const auto& found : difference_of(whole_manifest(), zero, whole_manifest(), minus_zero)) {
    EXPECT_EQ(found.differing, found.elements);
    EXPECT_EQ(found.largest_ulp, 0U);
    EXPECT_EQ(found.first_row, 0);
  }
  for (const auto& found : difference_of(whole_manifest(), nan, whole_manifest(), other_nan)) {
    EXPECT_EQ(found.differing, found.elements);
    EXPECT_EQ(found.largest_ulp, 0U);
  }
  for (const auto& found : difference_of(whole_manifest(), nan, whole_manifest(), nan)) EXPECT_EQ(found.differing, 0);
}

// More rows and columns than a block has, cut differently on the two sides.
TEST(DifferenceTest, GoesOverLargeTensorsBlockByBlock) {
  Manifest a;
  a.files = {{"one.safetensors", 0, ""}};
  a.tensors = {{"w",
                StateKind::kWeight,
                {1030, 1500},
                DType::kF32,
                {{0, {{0, 1030}, {0, 700}}, ""}, {0, {{0, 1030}, {700, 1500}}, ""}}},
               {"v", StateKind::kWeight, {(1 << 20) + 3}, DType::kF32, {{0, {{0, (1 << 20) + 3}, {0, 1}}, ""}}}};
  Manifest b = a;
  b.tensors[0].slices = {{0, {{0, 900}, {0, 1500}}, ""}, {0, {{900, 1030}, {0, 1500}}, ""}};
  const ValueOf value = [](const StoredState&, std::int64_t row, std::int64_t column) {
    return static_cast<float>(row * 1500 + column);
  };
  const ValueOf changed = [&](const StoredState& tensor, std::int64_t row, std::int64_t column) {
    const bool here = tensor.name == "w" ? (row == 1000 && column == 1400) || (row == 1001 && column == 3) ||
                                               (row == 1029 && column == 1499)
                                         : row == (1 << 20) + 2;
    return here ? std::nextafter(value(tensor, row, column), kInfinity) : value(tensor, row, column);
  };
  const auto differences = difference_of(a, value, b, changed);
  EXPECT_EQ(differences[0].elements, 1030 * 1500);
  EXPECT_EQ(differences[0].differing, 3);
  EXPECT_EQ(differences[0].largest_ulp, 1U);
  EXPECT_EQ(differences[0].first_row, 1000);  // in a later block than row 1001
  EXPECT_EQ(differences[0].first_column, 1400);
  EXPECT_EQ(differences[1].differing, 1);
  EXPECT_EQ(differences[1].first_row, (1 << 20) + 2);
}

TEST(DifferenceTest, OtherTensorsAreRefusedByName) {
  Manifest fewer = handmade_manifest();
  fewer.tensors.erase(fewer.tensors.begin() + 3);
  EXPECT_THAT(refusal_of(handmade_manifest(), fewer), HasSubstr("b has no tensor exp_avg/b"));
  EXPECT_THAT(refusal_of(fewer, handmade_manifest()), HasSubstr("a has no tensor exp_avg/b"));
  Manifest other = whole_manifest();
  other.tensors[1].shape = {6};
  other.tensors[1].slices[0].box.rows.end = 6;
  EXPECT_THAT(refusal_of(handmade_manifest(), other), HasSubstr("tensor weight/b is [5] in a, but [6] in b"));
}

}  // namespace
}  // namespace trireme::checkpoint
