#pragma once

// What the fields of a config.json mean here, as data: read, fixed, switched off or passed over. Anything else is
// unknown, and refused unless it switches nothing on.

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "model/config.h"

namespace trireme::model {

// What another value of a field than the one that is implemented would change: shapes, and with them counts and
// bytes, or the arithmetic alone, which is the business of whoever computes.
enum class Changes { kShapes, kArithmetic };

// A field that is implemented for one value only.
struct FixedField {
  std::string_view name;
  std::string_view legal;     // as JSON writes it: "true", "false" or a number
  bool null_is_legal = true;  // false where Hugging Face takes null for another value than `legal`
  Changes changes = Changes::kShapes;
  std::string_view rule;
};

// A field of a feature that is not implemented. It may be there, switched off: null, false, {} or []. A family that
// reads the field itself, or has it fixed, goes first.
struct ForeignField {
  std::string_view name;
  Changes changes = Changes::kShapes;
  std::string_view rule;
};

// Fields that change no number which training computes, and why not.
struct PassedOverFields {
  std::string_view reason;
  std::span<const std::string_view> names;
  std::span<const std::string_view> prefixes = {};  // of further names
};

// Fields that a parser reads, by family.
std::span<const std::string_view> read_fields(Family family);
std::span<const FixedField> fixed_fields(Family family);
std::span<const ForeignField> foreign_fields();
std::span<const PassedOverFields> passed_over_fields();

// Why a field is passed over; nothing where it is not.
std::optional<std::string_view> reason_to_pass_over(std::string_view name);

bool is_legal(const FixedField& field, const Json& value);
// null, false, {} and []: such a value switches nothing on, whatever the field.
bool is_switched_off(const Json& value);

// Every field that `family` may hold: what "did you mean" chooses from.
std::vector<std::string> known_fields(Family family);
// Of these, what shapes or arithmetic depend on.
std::vector<std::string> fields_that_count(Family family);
// That of `fields` which is one letter off `name`; "" for none. A slip of the pen brings back a field's default, even
// where its value is null or false.
std::string misspelt_field(std::string_view name, const std::vector<std::string>& fields);

}  // namespace trireme::model
