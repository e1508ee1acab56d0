#pragma once

// A JSON value: what config.json, manifests, metrics and --json output are read into and written from.
// Objects keep their order of insertion. Integers stay integers (64 bit).

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"

namespace trireme {

class Json {
 public:
  using Array = std::vector<Json>;
  using Member = std::pair<std::string, Json>;
  using Object = std::vector<Member>;

  Json() : value_(nullptr) {}
  Json(std::nullptr_t) : value_(nullptr) {}                     // NOLINT
  Json(bool value) : value_(value) {}                           // NOLINT
  Json(int value) : value_(std::int64_t{value}) {}              // NOLINT
  Json(std::int64_t value) : value_(value) {}                   // NOLINT
  Json(double value) : value_(value) {}                         // NOLINT
  Json(const char* value) : value_(std::string(value)) {}       // NOLINT
  Json(std::string value) : value_(std::move(value)) {}         // NOLINT
  Json(std::string_view value) : value_(std::string(value)) {}  // NOLINT
  Json(Array value) : value_(std::move(value)) {}               // NOLINT
  Json(Object value) : value_(std::move(value)) {}              // NOLINT
  static Json array() { return Json(Array{}); }
  static Json object(std::initializer_list<Member> members = {}) { return Json(Object(members)); }

  bool is_null() const { return std::holds_alternative<std::nullptr_t>(value_); }
  bool is_bool() const { return std::holds_alternative<bool>(value_); }
  bool is_integer() const { return std::holds_alternative<std::int64_t>(value_); }
  bool is_number() const { return is_integer() || std::holds_alternative<double>(value_); }
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  bool is_array() const { return std::holds_alternative<Array>(value_); }
  bool is_object() const { return std::holds_alternative<Object>(value_); }
  // "null", "true or false", "integer", "number", "text", "list" or "object".
  std::string_view type_name() const;

  // The value; InternalError if it is of another type (check first, or use the readers of the file at hand).
  bool as_bool() const;
  std::int64_t as_integer() const;
  double as_number() const;  // an integer too
  const std::string& as_string() const;
  const Array& as_array() const;
  Array& as_array();
  const Object& as_object() const;
  Object& as_object();

  // Member of an object, or null if it is absent (or this is no object).
  const Json* find(std::string_view key) const;
  // Sets or appends a member; a null value becomes an object first.
  Json& operator[](std::string_view key);
  void push_back(Json value);

  friend bool operator==(const Json& a, const Json& b) = default;

  // indent < 0: one line. Doubles print shortest-round-trip; NaN and infinity are refused (InternalError).
  std::string dump(int indent = -1) const;

 private:
  std::variant<std::nullptr_t, bool, std::int64_t, double, std::string, Array, Object> value_;
};

// Text to value. `what` names the file in the Failure, which gives line and column.
// Duplicate keys in one object are refused.
Result<Json> parse_json(std::string_view text, std::string_view what);
// A TOML document as the same value (tables are objects). Dates are refused.
Result<Json> parse_toml(std::string_view text, std::string_view what);
// An object of scalars, lists and tables as a TOML document.
std::string to_toml(const Json& document);

// The entry of `known` that is really near to `word`, for "did you mean"; "" where none is.
std::string nearest_word(std::string_view word, const std::vector<std::string>& known);

}  // namespace trireme
