#include <cmath>
#include <string>

#include <gtest/gtest.h>

#include "base/json.h"

namespace trireme {
namespace {

std::string refusal(std::string_view text) {
  const Result<Json> result = parse_toml(text, "run.toml");
  return result.ok() ? "accepted" : result.failure().sentence();
}

TEST(ParseToml, KeepsTypesAndTheOrderOfTheDocument) {
  const Json document = parse_toml(R"(
layout = "auto"
[train]
steps = 50
lr = 1e-3
save = true
beta = [0.9, 0.95]
[model]
path = "config.json"
[train.log]
every = 10
[[hosts]]
name = "a"
[[hosts]]
name = "b"
)",
                                   "run.toml")
                            .or_throw();
  EXPECT_EQ(document.dump(),
            R"({"layout":"auto","train":{"steps":50,"lr":0.001,"save":true,"beta":[0.9,0.95],"log":{"every":10}},)"
            R"("model":{"path":"config.json"},"hosts":[{"name":"a"},{"name":"b"}]})");
}

TEST(ParseToml, ErrorsNameLineAndColumn) {
  EXPECT_EQ(refusal("a = 1\nb = = 2\n").substr(0, 27), "run.toml: line 2, column 5:");
  EXPECT_EQ(refusal("a = 1\na = 2\n").substr(0, 19), "run.toml: line 2, c");
  EXPECT_NE(refusal("a = \xFF"), "accepted");
}

TEST(ParseToml, DatesInfinityAndNanAreRefused) {
  EXPECT_EQ(refusal("a = 1\nwhen = 2024-01-02\n"),
            "run.toml: line 2, column 8: dates and times are not used here; write them as text in quotes");
  EXPECT_NE(refusal("a = 10:00:00").find("dates and times"), std::string::npos);
  EXPECT_NE(refusal("a = [inf]").find("no values"), std::string::npos);
  EXPECT_NE(refusal("a = nan").find("no values"), std::string::npos);
}

TEST(ToToml, RoundTrips) {
  const std::string text = R"(layout = "auto"
"key with blank" = 1

[train]
steps = 50
lr = 0.001
big = 1e+22
whole = 3.0
list = [1, 2.5, "x", [true]]
tables = [{ a = 1, b = { c = 2 } }, {}]
path = "a\"b\\c\n\u0001ü"

[train.log]
every = 10

[train.log."x.y"]

[model]
name = ""
)";
  const Json document = parse_toml(text, "x").or_throw();
  EXPECT_EQ(to_toml(document), text);
  EXPECT_EQ(parse_toml(to_toml(document), "x").or_throw(), document);
}

TEST(ParseToml, WhatTheLibraryAssertsIsARefusal) {
  EXPECT_NE(refusal("a = 1\n[=").find("run.toml: line 2, column 2: "), std::string::npos) << refusal("a = 1\n[=");
  EXPECT_NE(refusal("[[$a]]").find("run.toml: line 1, column 3: "), std::string::npos) << refusal("[[$a]]");
}

TEST(ParseToml, LettersOutsideTexts) {
  EXPECT_NE(refusal("a \u0496 = 1").find("run.toml: line 1, column 3: "), std::string::npos) << refusal("a \u0496 = 1");
  EXPECT_EQ(refusal("a = 1 # \u0496\nb = \"\"\"\u0496 \\\n \u0496\"\"\""), "accepted");
}

// "a . a . a" with this many dots.
std::string dotted(int dots) {
  std::string key = "a";
  for (int i = 0; i < dots; ++i) key += " . a";
  return key;
}

TEST(ParseToml, DeepDocumentsAreRefused) {
  const std::string rule = "a key has at most 16 dots";
  EXPECT_EQ(refusal(dotted(16) + " = 1"), "accepted");
  EXPECT_EQ(refusal("x = 1.5\n" + dotted(17) + " = 1"), "run.toml: line 2, column 67: " + rule);
  EXPECT_NE(refusal("[" + dotted(200000) + "]").find(rule), std::string::npos);
  EXPECT_NE(refusal("x = {" + dotted(200000) + " = 1}").find(rule), std::string::npos);
  EXPECT_NE(refusal("x = [\"\"\"a\"\"\"\", {" + dotted(17) + " = 1}]").find(rule), std::string::npos);
  std::string nested = "x = ";
  for (int i = 0; i < 250; ++i) nested += "{" + dotted(16) + " = ";
  nested += "1" + std::string(250, '}');
  EXPECT_NE(refusal(nested).find("nested deeper than 200 levels"), std::string::npos) << refusal(nested);
  EXPECT_NE(refusal("x = " + std::string(100000, '[')), "accepted");
}

TEST(ParseToml, DotsInTextsAndCommentsAreNoneOfKeys) {
  const std::string dots(100, '.');
  EXPECT_EQ(refusal("a = \"" + dots + "\" # " + dots), "accepted");
  EXPECT_EQ(refusal("a = \"\\\"" + dots + "\""), "accepted");
  EXPECT_EQ(refusal("a = '\\" + dots + "'"), "accepted");
  EXPECT_EQ(refusal("a = \"\"\"\n" + dots + "\n\"" + dots + "\"\"\"\""), "accepted");
  EXPECT_EQ(refusal("a = '''\n" + dots + "'" + dots + "''''"), "accepted");
  EXPECT_EQ(refusal("\"" + dots + "\".'" + dots + "' = 1"), "accepted");
}

TEST(ToToml, ScalarsComeBeforeTables) {
  Json document;
  document["table"]["a"] = 1;
  document["scalar"] = 2;
  EXPECT_EQ(to_toml(document), "scalar = 2\n\n[table]\na = 1\n");
}

TEST(ToToml, WhatTomlCannotSayIsABrokenInvariant) {
  EXPECT_THROW(to_toml(Json(1)), InternalError);
  EXPECT_THROW(to_toml(Json::object({{"a", nullptr}})), InternalError);
  EXPECT_THROW(to_toml(Json::object({{"a", std::nan("")}})), InternalError);
}

}  // namespace
}  // namespace trireme
