#include "base/missing_unit.h"

#include <gtest/gtest.h>

namespace trireme {
namespace {

TEST(MissingUnit, ASmallBareSizeIsAskedForItsUnit) {
  const auto sentence = [](const char* text) {
    const Result<Bytes> parsed = parse_bytes_with_unit(text, kLeastBareMemory);
    return parsed.ok() ? std::string() : parsed.failure().sentence();
  };
  EXPECT_EQ(sentence("80"), "bytes = \"80\": has no unit; did you mean 80GB, 80GiB? bytes are written 80B");
  EXPECT_EQ(sentence(" 79.1 "),
            "bytes = \" 79.1 \": has no unit; did you mean 79.1GB, 79.1GiB? bytes are written 79.1B");
  EXPECT_NE(sentence("81559").find("did you mean 81559MB, 81559MiB?"), std::string::npos) << sentence("81559");
  EXPECT_NE(sentence("8e1").find("did you mean 8e1GB"), std::string::npos);
  EXPECT_NE(sentence("1").find("did you mean 1GB"), std::string::npos);
  EXPECT_NE(sentence("-80").find("not negative"), std::string::npos);
  EXPECT_NE(sentence("80gb").find("has the unit \"gb\""), std::string::npos);
}

TEST(MissingUnit, WhatHasAUnitOrAPlausibleSizeIsTaken) {
  const auto bytes = [](const char* text) { return parse_bytes_with_unit(text, kLeastBareMemory).value().count; };
  EXPECT_EQ(bytes("80GB"), 80'000'000'000);
  EXPECT_EQ(bytes("80B"), 80);
  EXPECT_EQ(bytes("80 B"), 80);
  EXPECT_EQ(bytes("80000000000"), 80'000'000'000);
  EXPECT_EQ(bytes("1000000"), 1'000'000);
  EXPECT_EQ(bytes("0"), 0);
  EXPECT_EQ(bytes("2e9"), 2'000'000'000);
}

TEST(MissingUnit, OfCounts) {
  EXPECT_EQ(parse_count_with_unit("7", 1e4).failure().sentence(),
            "count = \"7\": has no unit; did you mean 7B (billions), 7M?");
  EXPECT_FALSE(parse_count_with_unit("0.5", 1e4).ok());
  EXPECT_FALSE(parse_count_with_unit("9999", 1e4).ok());
  EXPECT_EQ(parse_count_with_unit("7B", 1e4).value(), 7e9);
  EXPECT_EQ(parse_count_with_unit("7000000000", 1e4).value(), 7e9);
  EXPECT_EQ(parse_count_with_unit("7e9", 1e4).value(), 7e9);
  EXPECT_EQ(parse_count_with_unit("10000", 1e4).value(), 1e4);
  EXPECT_EQ(parse_count_with_unit("0", 1e4).value(), 0);
  EXPECT_FALSE(parse_count_with_unit("", 1e4).ok());
}

}  // namespace
}  // namespace trireme
