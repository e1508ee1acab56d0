#include "base/json.h"

#include <cmath>
#include <limits>
#include <string>

#include <gtest/gtest.h>

namespace trireme {
namespace {

Json parsed(std::string_view text) { return parse_json(text, "x.json").or_throw(); }

std::string refusal(std::string_view text) {
  const Result<Json> result = parse_json(text, "x.json");
  return result.ok() ? "accepted" : result.failure().sentence();
}

TEST(JsonTest, TypesAndAccess) {
  Json document = Json::object({{"null", nullptr}, {"yes", true}, {"n", 3}, {"x", 0.5}, {"t", "text"}});
  document["list"] = Json(Json::Array{1, 2.5, "three"});
  EXPECT_TRUE(document.find("null")->is_null());
  EXPECT_TRUE(document.find("yes")->as_bool());
  EXPECT_EQ(document.find("n")->as_integer(), 3);
  EXPECT_EQ(document.find("n")->as_number(), 3.0);
  EXPECT_EQ(document.find("x")->as_number(), 0.5);
  EXPECT_EQ(document.find("t")->as_string(), "text");
  EXPECT_EQ(document.find("list")->as_array().size(), 3u);
  EXPECT_EQ(document.find("absent"), nullptr);
  EXPECT_EQ(Json(3).find("absent"), nullptr);
  EXPECT_EQ(Json(3).type_name(), "integer");
  EXPECT_EQ(Json(3.0).type_name(), "number");
  EXPECT_EQ(Json(true).type_name(), "true or false");
  EXPECT_EQ(document.type_name(), "object");
  EXPECT_EQ(Json::array().type_name(), "list");
  EXPECT_EQ(Json().type_name(), "null");
  EXPECT_EQ(Json("a").type_name(), "text");
}

TEST(JsonTest, ReadingAsAnotherTypeIsABrokenInvariant) {
  EXPECT_THROW(static_cast<void>(Json("a").as_integer()), InternalError);
  EXPECT_THROW(static_cast<void>(Json(0.5).as_integer()), InternalError);
  EXPECT_THROW(static_cast<void>(Json("a").as_number()), InternalError);
  EXPECT_THROW(static_cast<void>(Json(1).as_bool()), InternalError);
  EXPECT_THROW(static_cast<void>(Json(1).as_string()), InternalError);
  EXPECT_THROW(static_cast<void>(Json(1).as_array()), InternalError);
  EXPECT_THROW(static_cast<void>(Json(1)["key"]), InternalError);
}

TEST(JsonTest, NullBecomesWhatIsPutIntoIt) {
  Json object;
  object["a"]["b"] = 1;
  EXPECT_EQ(object.dump(), R"({"a":{"b":1}})");
  object["a"] = 2;
  EXPECT_EQ(object.dump(), R"({"a":2})");
  Json list;
  list.push_back(1);
  list.push_back("x");
  EXPECT_EQ(list.dump(), R"([1,"x"])");
}

TEST(JsonDump, DoublesRoundTripAndShowThatTheyAreDoubles) {
  EXPECT_EQ(Json(1.0).dump(), "1.0");
  EXPECT_EQ(Json(-0.0).dump(), "-0.0");
  EXPECT_EQ(Json(0.1).dump(), "0.1");
  EXPECT_EQ(Json(1e22).dump(), "1e+22");
  EXPECT_EQ(Json(1).dump(), "1");
  for (const double x : {0.1, 1.0 / 3, 1e300, 5e-324, std::numeric_limits<double>::max(), 123456789.0, 1e17}) {
    const Json back = parsed(Json(x).dump());
    EXPECT_FALSE(back.is_integer());
    EXPECT_EQ(back.as_number(), x);
  }
  EXPECT_THROW(Json(std::nan("")).dump(), InternalError);
  EXPECT_THROW(Json(std::numeric_limits<double>::infinity()).dump(), InternalError);
}

TEST(JsonDump, StringsAreEscaped) {
  EXPECT_EQ(Json("a\"b\\c\n\t\r\x01").dump(), R"("a\"b\\c\n\t\r\u0001")");
  EXPECT_EQ(Json("grüße €").dump(), "\"grüße €\"");
  const std::string bad =
      "a\xFF"
      "b\xC3";
  EXPECT_EQ(Json(bad).dump(),
            "\"a\xEF\xBF\xBD"
            "b\xEF\xBF\xBD\"");
  for (const char* text : {"\xED\xA0\x80", "\xC0\x80", "\xF5\x80\x80\x80", "\xE2\x82"}) {
    EXPECT_TRUE(parse_json(Json(text).dump(), "x").ok());
  }
  const std::string all = [] {
    std::string text;
    for (int c = 0; c < 128; ++c) text += static_cast<char>(c);
    return text;
  }();
  EXPECT_EQ(parsed(Json(all).dump()).as_string(), all);
}

TEST(JsonDump, Indented) {
  const Json document = parsed(R"({"a":[1,2],"b":{"c":[{"d":1}],"e":[]},"f":{}})");
  EXPECT_EQ(document.dump(2), R"({
  "a": [1, 2],
  "b": {
    "c": [
      {
        "d": 1
      }
    ],
    "e": []
  },
  "f": {}
})");
  EXPECT_EQ(parsed(document.dump(2)), document);
}

TEST(ParseJson, KeepsOrderAndIntegers) {
  const std::string text = R"({"z":1,"a":-9223372036854775808,"m":[true,false,null,0.5,9223372036854775807]})";
  EXPECT_EQ(parsed(text).dump(), text);
  EXPECT_TRUE(parsed("3").is_integer());
  EXPECT_FALSE(parsed("3.0").is_integer());
  EXPECT_FALSE(parsed("3e2").is_integer());
  EXPECT_EQ(parsed(R"("\u00fc\ud83d\ude00")").as_string(), "ü😀");
}

TEST(ParseJson, IntegersBeyond64BitsAreRefused) {
  EXPECT_EQ(refusal("{\n \"a\": 9223372036854775808}"),
            "x.json: line 2, column 7: integer 9223372036854775808 does not fit in 64 bits with sign");
  EXPECT_NE(refusal("123456789012345678901234567890").find("does not fit"), std::string::npos);
  EXPECT_NE(refusal("-9223372036854775809").find("does not fit"), std::string::npos);
  EXPECT_NE(refusal("1e999").find("number overflow"), std::string::npos);
}

TEST(ParseJson, DuplicateKeysAreRefusedWhereTheyStand) {
  EXPECT_EQ(refusal("{\"a\": 1,\n  \"b\": 2, \"a\": 3}"), "x.json: line 2, column 11: duplicate key \"a\"");
  EXPECT_EQ(refusal(R"({"x\"y": 1, "x\"y": 3})"), "x.json: line 1, column 13: duplicate key \"x\"y\"");
  EXPECT_TRUE(parse_json(R"({"a": {"a": 1}, "b": {"a": 1}})", "x").ok());
}

TEST(ParseJson, SyntaxErrorsNameLineAndColumn) {
  EXPECT_EQ(refusal("{\n  \"a\": }").substr(0, 25), "x.json: line 2, column 8:");
  EXPECT_EQ(refusal("").substr(0, 25), "x.json: line 1, column 1:");
  EXPECT_EQ(refusal("[1, 2").substr(0, 25), "x.json: line 1, column 6:");
  EXPECT_EQ(refusal("{} x").substr(0, 25), "x.json: line 1, column 4:");
  EXPECT_NE(refusal("[NaN]"), "accepted");
  EXPECT_NE(refusal("\"\xFF\""), "accepted");
}

TEST(ParseJson, DeepNestingIsRefused) {
  EXPECT_NE(refusal(std::string(100000, '[')).find("nested deeper than 200 levels"), std::string::npos);
  EXPECT_TRUE(parse_json(std::string(200, '[') + std::string(200, ']'), "x").ok());
}

TEST(NearestWord, ByEditDistance) {
  EXPECT_EQ(nearest_word("hidden_sise", {"hidden_size", "head_dim"}), "hidden_size");
  EXPECT_EQ(nearest_word("tpp", {"pp", "tp"}), "pp");            // a tie: the first
  EXPECT_EQ(nearest_word("trian", {"train", "plan"}), "train");  // two neighbours swapped
  EXPECT_EQ(nearest_word("Micro-Batch", {"global_batch", "micro_batch"}), "micro_batch");
  EXPECT_EQ(nearest_word("abc", {"abc"}), "abc");
  EXPECT_EQ(nearest_word("abc", {}), "");
}

TEST(NearestWord, NoneWhereNoneIsReallyNear) {
  EXPECT_EQ(nearest_word("", {"abc", "ab"}), "");
  EXPECT_EQ(nearest_word("lr", {"tp", "pp", "decay"}), "");
  EXPECT_EQ(nearest_word("cp", {"tp", "pp", "dp"}), "");
  EXPECT_EQ(nearest_word("batch_size", {"train.seed", "hidden_size", "global_batch"}), "");
  EXPECT_EQ(nearest_word("weight_decay", {"max_decay_steps"}), "");
}

TEST(NearestWord, PartsBesideADotAreNearEachByItself) {
  EXPECT_EQ(nearest_word("train.step", {"train.steps", "train.seed"}), "train.steps");
  EXPECT_EQ(nearest_word("trian.steps", {"train.steps"}), "train.steps");
  EXPECT_EQ(nearest_word("optimizer.lr", {"optimizer.decay", "optimizer.beta1"}), "");
  EXPECT_EQ(nearest_word("layout.steps", {"train.steps"}), "");
  EXPECT_EQ(nearest_word("links.inside.bandwith", {"links.inside.bandwidth", "links.between.bandwidth"}),
            "links.inside.bandwidth");
}

}  // namespace
}  // namespace trireme
