#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#define TOML_HEADER_ONLY 1
#include <toml++/toml.h>

#include "base/check.h"
#include "base/json.h"

namespace trireme {
namespace {

// Thrown and caught inside this file, from wherever in the document a value turns out to be refused.
struct RefusedValue {
  Failure failure;
};

Failure failure_at(std::string_view what, const toml::source_region& source, std::string_view reason) {
  return {std::string(what), "", fmt::format("line {}, column {}: {}", source.begin.line, source.begin.column, reason),
          ""};
}

class TomlReader {
 public:
  explicit TomlReader(std::string_view what) : what_(what) {}

  Json read(const toml::node& node) const {
    switch (node.type()) {
      case toml::node_type::table:
        return read_table(*node.as_table());
      case toml::node_type::array:
        return read_array(*node.as_array());
      case toml::node_type::string:
        return Json(node.as_string()->get());
      case toml::node_type::integer:
        return Json(std::int64_t{node.as_integer()->get()});
      case toml::node_type::floating_point:
        if (!std::isfinite(node.as_floating_point()->get())) refuse(node, "infinity and nan are no values");
        return Json(node.as_floating_point()->get());
      case toml::node_type::boolean:
        return Json(node.as_boolean()->get());
      default:
        refuse(node, "dates and times are not used here; write them as text in quotes");
    }
  }

 private:
  // toml++ sorts keys by name; the order of the document is in their source positions.
  Json read_table(const toml::table& table) const {
    std::vector<std::pair<toml::source_position, Json::Member>> members;
    for (const auto& [key, node] : table) {
      members.emplace_back(key.source().begin, Json::Member(std::string(key.str()), read(node)));
    }
    std::stable_sort(members.begin(), members.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    Json::Object object;
    for (auto& member : members) object.push_back(std::move(member.second));
    return Json(std::move(object));
  }

  Json read_array(const toml::array& array) const {
    Json::Array items;
    for (const toml::node& node : array) items.push_back(read(node));
    return Json(std::move(items));
  }

  [[noreturn]] void refuse(const toml::node& node, std::string_view reason) const {
    throw RefusedValue{failure_at(what_, node.source(), reason)};
  }

  std::string_view what_;
};

bool is_bare_key(std::string_view key) {
  const auto bare = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  };
  return !key.empty() && std::all_of(key.begin(), key.end(), bare);
}

std::string key_text(std::string_view key) { return is_bare_key(key) ? std::string(key) : Json(key).dump(); }

// A value inside a line. Text and numbers are written as in JSON, whose escapes TOML knows; tables inside
// lists are inline tables.
void write_inline(const Json& value, std::string& out) {
  TRIREME_CHECK(!value.is_null(), "TOML has no null");
  if (value.is_array()) {
    out += '[';
    for (std::size_t i = 0; i < value.as_array().size(); ++i) {
      if (i > 0) out += ", ";
      write_inline(value.as_array()[i], out);
    }
    out += ']';
  } else if (value.is_object()) {
    out += "{";
    for (std::size_t i = 0; i < value.as_object().size(); ++i) {
      const auto& [key, member] = value.as_object()[i];
      out += (i > 0 ? ", " : " ") + key_text(key) + " = ";
      write_inline(member, out);
    }
    out += value.as_object().empty() ? "}" : " }";
  } else {
    out += value.dump();
  }
}

// Scalars and lists first: after a [header] everything belongs to that table.
void write_table(const Json& table, const std::string& path, std::string& out) {
  for (const auto& [key, value] : table.as_object()) {
    if (value.is_object()) continue;
    out += key_text(key) + " = ";
    write_inline(value, out);
    out += '\n';
  }
  for (const auto& [key, value] : table.as_object()) {
    if (!value.is_object()) continue;
    const std::string name = path.empty() ? key_text(key) : path + "." + key_text(key);
    if (!out.empty()) out += '\n';
    out += "[" + name + "]\n";
    write_table(value, name, out);
  }
}

}  // namespace

Result<Json> parse_toml(std::string_view text, std::string_view what) {
  try {
    const toml::table document = toml::parse(text);
    return TomlReader(what).read(document);
  } catch (const toml::parse_error& error) {
    return failure_at(what, error.source(), error.description());
  } catch (const RefusedValue& refused) {
    return refused.failure;
  }
}

std::string to_toml(const Json& document) {
  TRIREME_CHECK(document.is_object(), "a TOML document is an object, not {}", document.type_name());
  std::string out;
  write_table(document, "", out);
  return out;
}

}  // namespace trireme
