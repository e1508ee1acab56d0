// Every field of transformers' configurations has a class in tests/model/transformers_fields.tsv (which
// tools/transformers_fields.py makes), and is treated as it says.

#include "model/config_fields.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "base/env.h"
#include "base/words.h"
#include "model/config_reading.h"

namespace trireme::model {
namespace {

struct Row {
  std::string family;  // "rope": inside rope_parameters, of a llama
  std::string name;
  Json normal;  // transformers' default
  Json other;
  std::string what;
  Json beside = Json::object();
};

std::vector<Row> rows() {
  const std::string path = std::string(TRIREME_SOURCE_DIR) + "/tests/model/transformers_fields.tsv";
  std::vector<Row> all;
  const std::string text = posix_env().read_file(path);
  for (const std::string_view line : split(text, '\n')) {
    if (line.empty() || line.starts_with("#")) continue;
    const std::vector<std::string_view> columns = split(line, '\t');
    EXPECT_EQ(columns.size(), 6U) << line;
    Row row{std::string(columns[0]), std::string(columns[1]), parse_json(columns[2], "default").or_throw(),
            parse_json(columns[3], "other").or_throw(), std::string(columns[4])};
    if (!columns[5].empty()) row.beside = parse_json(columns[5], "beside").or_throw();
    if (row.family != "*") {
      all.push_back(row);
      continue;
    }
    for (int family = 0; family < kFamilyCount; ++family) {
      row.family = family_name(static_cast<Family>(family));
      all.push_back(row);
    }
  }
  return all;
}

Json base_of(const std::string& family) {
  if (family == "gpt2") {
    return parse_json(R"({"model_type": "gpt2", "n_embd": 96, "n_layer": 30, "n_head": 4, "vocab_size": 600000})", "c")
        .or_throw();
  }
  Json document = parse_json(R"({"hidden_size": 128, "intermediate_size": 96, "num_hidden_layers": 30,
      "num_attention_heads": 32, "num_key_value_heads": 2, "vocab_size": 600000})",
                             "c")
                      .or_throw();
  document["model_type"] = family == "rope" ? "llama" : family;
  return document;
}

void put(Json& document, const std::string& name, const Json& value) {
  std::erase_if(document.as_object(), [&](const Json::Member& member) { return member.first == name; });
  document[name] = value;
}

// A config whose field has this value.
Json with(const Row& row, const Json& value) {
  Json document = base_of(row.family);
  Json inside = Json::object({{"rope_type", "default"}});
  Json& members = row.family == "rope" ? inside : document;
  for (const auto& [name, beside] : row.beside.as_object()) {
    put(members, name, beside);
    if (beside.is_null()) members.as_object().pop_back();
  }
  put(members, row.name, value);
  if (row.family == "rope") document["rope_parameters"] = inside;
  return document;
}

Config base_config(const Row& row) { return parse_config(base_of(row.family), "c").or_throw(); }
bool names_field(const Failure& failure, const Row& row) { return failure.option.ends_with(": " + row.name); }

void expect_read(const Row& row) {
  const Result<Config> normal = parse_config(with(row, row.normal), "c");
  const Result<Config> other = parse_config(with(row, row.other), "c");
  ASSERT_TRUE(normal.ok() || row.family == "rope") << normal.failure().sentence();
  if (normal && other) {
    EXPECT_FALSE(*normal == *other);
  } else {
    EXPECT_TRUE(names_field((normal ? other : normal).failure(), row));
  }
}

void expect_passed_over(const Row& row) {
  EXPECT_TRUE(reason_to_pass_over(row.name).has_value());
  for (const Json& value : {row.normal, row.other, Json(nullptr), Json(7), Json("text")}) {
    const Result<Config> config = parse_config(with(row, value), "c");
    ASSERT_TRUE(config.ok()) << config.failure().sentence();
    EXPECT_EQ(*config, base_config(row));
  }
}

void expect_counted_alone(const Row& row) {
  const Result<Config> normal = parse_config(with(row, row.normal), "c");
  ASSERT_TRUE(normal.ok()) << normal.failure().sentence();
  EXPECT_EQ(*normal, base_config(row));
  const Result<ConfigReading> other = read_config(with(row, row.other), "c");
  ASSERT_TRUE(other.ok()) << other.failure().sentence();
  ASSERT_EQ(other->not_computed.size(), 1U);
  EXPECT_TRUE(names_field(other->not_computed.front(), row)) << other->not_computed.front().sentence();
  const Result<Config> computed = parse_config(with(row, row.other), "c");
  ASSERT_FALSE(computed.ok());
  EXPECT_TRUE(names_field(computed.failure(), row));
}

void expect_refused(const Row& row) {
  const Result<Config> normal = parse_config(with(row, row.normal), "c");
  ASSERT_TRUE(normal.ok()) << normal.failure().sentence();
  EXPECT_EQ(*normal, base_config(row));
  const Result<ConfigReading> other = read_config(with(row, row.other), "c");
  ASSERT_FALSE(other.ok());
  EXPECT_TRUE(names_field(other.failure(), row)) << other.failure().sentence();
}

TEST(TransformersFields, EachIsTreatedAsItsClassSays) {
  std::size_t checked = 0;
  for (const Row& row : rows()) {
    SCOPED_TRACE(row.family + " " + row.name);
    if (row.what == "read") {
      expect_read(row);
    } else if (row.what == "passed over") {
      expect_passed_over(row);
    } else if (row.what == "computing") {
      expect_counted_alone(row);
    } else if (row.what == "refused") {
      expect_refused(row);
    } else {
      ADD_FAILURE() << "has the class \"" << row.what << '"';
    }
    ++checked;
  }
  EXPECT_GT(checked, 600U);
}

TEST(TransformersFields, ASlipOfThePenIsOneLetter) {
  const std::vector<std::string> fields = {"tie_word_embeddings", "n_head"};
  for (const char* slip : {"tie_word_embedding", "tie_word_embeddingsx", "xtie_word_embeddings", "tieword_embeddings",
                           "tie_word-embeddings", "tie_word_embeddinngs"}) {
    EXPECT_EQ(misspelt_field(slip, fields), "tie_word_embeddings") << slip;
  }
  for (const char* other : {"tie_word_embeddings", "tie_words_embedding", "tie", "", "_n_head_"}) {
    EXPECT_EQ(misspelt_field(other, fields), "") << other;
  }
}

}  // namespace
}  // namespace trireme::model
