#include "model/field_reader.h"

#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "base/units.h"

namespace trireme::model {

std::string shown(const Json& value) {
  if (value.is_number() && !std::isfinite(value.as_number())) return "not a finite number";
  constexpr std::size_t kLongest = 60;
  std::string text = value.dump();
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  return text;
}

std::string FieldReader::option(std::string_view name) const { return fmt::format("{}: {}", what_, name); }

void FieldReader::refuse(std::string_view name, std::string value, std::string rule, std::string nearest) {
  failures_.push_back({option(name), std::move(value), std::move(rule), std::move(nearest)});
}

void FieldReader::adopt(const FieldReader& other) {
  failures_.insert(failures_.end(), other.failures_.begin(), other.failures_.end());
}

void FieldReader::refuse_total(double parameters) {
  if (parameters < kMaxParameters) return;
  refuse("parameters", fmt::format("about {:.2g}", parameters), fmt::format("must be below {:.0e}", kMaxParameters),
         "look for a size with digits too many");
}

const Json* FieldReader::given(std::string_view name) const {
  const Json* value = object_.find(name);
  return value != nullptr && !value->is_null() ? value : nullptr;
}

std::int64_t FieldReader::size(std::string_view name, std::int64_t most) {
  if (object_.find(name) == nullptr) {
    refuse(name, "", "the field is missing, and the model's shape depends on it", fmt::format("add \"{}\"", name));
    return 1;
  }
  return size_or(name, 1, most);
}

std::int64_t FieldReader::size_or(std::string_view name, std::int64_t fallback, std::int64_t most, std::int64_t least) {
  const Json* value = object_.find(name);
  if (value == nullptr) return fallback;
  if (value->is_integer() && value->as_integer() >= least && value->as_integer() <= most) return value->as_integer();
  refuse(name, shown(*value), fmt::format("must be an integer from {} to {}", least, format_exact(most)));
  return fallback;
}

std::int64_t FieldReader::size_or_null(std::string_view name, std::int64_t fallback) {
  return given(name) == nullptr ? fallback : size_or(name, fallback);
}

double FieldReader::number_or(std::string_view name, double fallback, const Range& range) {
  const Json* value = object_.find(name);
  if (value == nullptr) return fallback;
  if (!value->is_number()) {
    refuse(name, shown(*value), fmt::format("must be a number, is {}", value->type_name()));
    return fallback;
  }
  const double number = value->as_number();
  const bool above = range.least_is_legal ? number >= range.least : number > range.least;
  if (std::isfinite(number) && above && number < range.end) return number;
  refuse(name, shown(*value), std::string(range.words));
  return fallback;
}

bool FieldReader::flag_or(std::string_view name, bool fallback) {
  const Json* value = object_.find(name);
  if (value == nullptr || (value->is_null() && !fallback)) return fallback;
  if (value->is_bool()) return value->as_bool();
  refuse(name, shown(*value), "must be true or false");
  return fallback;
}

std::string FieldReader::text_or(std::string_view name, std::string fallback) {
  const Json* value = object_.find(name);
  if (value == nullptr) return fallback;
  if (value->is_string()) return value->as_string();
  refuse(name, shown(*value), fmt::format("must be a text, is {}", value->type_name()));
  return fallback;
}

std::int64_t FieldReader::token_or(std::string_view name, std::int64_t fallback, std::int64_t vocabulary) {
  const Json* value = object_.find(name);
  std::int64_t id = fallback;
  if (value != nullptr) {
    if (value->is_array() && !value->as_array().empty()) value = &value->as_array().front();
    if (!value->is_null() && !value->is_integer()) {
      refuse(name, shown(*value), "must be a token id, a list of them, or null");
    }
    id = value->is_integer() ? value->as_integer() : -1;
  }
  return id >= 0 && id < vocabulary ? id : -1;
}

}  // namespace trireme::model
