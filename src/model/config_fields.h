#pragma once

// What the fields of a config.json mean to training, as data: read, fixed, switched off or passed over. Anything else
// is unknown and refused.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "model/config.h"

namespace trireme::model {

// A field that is implemented for one value only.
struct FixedField {
  std::string_view name;
  std::string_view legal;     // as JSON writes it: "true", "false" or a number
  bool null_is_legal = true;  // false where Hugging Face takes null for another value than `legal`
  std::string_view rule;
};

// A field of a feature that is not implemented. It may be there, switched off: null, false, {} or []. A family that
// reads the field itself goes first.
struct ForeignField {
  std::string_view name;
  std::string_view rule;
};

// Fields that a parser reads, by family; and those that do not change the mathematics of training.
std::span<const std::string_view> read_fields(Family family);
std::span<const std::string_view> passed_over_fields();
std::span<const FixedField> fixed_fields(Family family);
std::span<const ForeignField> foreign_fields();

bool is_legal(const FixedField& field, const Json& value);
bool is_switched_off(const Json& value);

// Every field that `family` may hold: what "did you mean" chooses from.
std::vector<std::string> known_fields(Family family);

}  // namespace trireme::model
