#pragma once

// Typed reads of one JSON object's fields, with the refusals that config.json's readers share.

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json.h"

namespace trireme::model {

// Widths beyond these are typing errors, and would overflow the exact counts.
inline constexpr std::int64_t kMaxWidth = std::int64_t{1} << 30;
inline constexpr std::int64_t kMaxLayers = 100'000;
inline constexpr double kMaxParameters = 1e15;

// A value as a refusal shows it: JSON, cut where it is long.
std::string shown(const Json& value);

// The legal numbers of a field.
struct Range {
  double least = -std::numeric_limits<double>::infinity();
  bool least_is_legal = true;
  double end = std::numeric_limits<double>::infinity();  // never legal itself
  std::string_view words;
};

// Refusals are kept, and a read that is refused gives its fallback, so that a parser is a list of reads with one check
// at its end. The object must outlive the reader.
class FieldReader {
 public:
  FieldReader(const Json& object, std::string what) : object_(object), what_(std::move(what)) {}

  bool ok() const { return failures_.empty(); }
  const Failure& failure() const { return failures_.front(); }        // the first; not ok()
  const std::vector<Failure>& failures() const { return failures_; }  // in the order of the reads
  const Json& object() const { return object_; }
  std::string option(std::string_view name) const;

  void refuse(std::string_view name, std::string value, std::string rule, std::string nearest = "");
  void adopt(const FieldReader& other);  // its refusals
  // Refuses a total (in floating point, since the point is to find what would overflow) of kMaxParameters or more.
  void refuse_total(double parameters);

  // The field, or null where it is absent or null.
  const Json* given(std::string_view name) const;

  std::int64_t size(std::string_view name, std::int64_t most = kMaxWidth);
  // `fallback` where the field is absent.
  std::int64_t size_or(std::string_view name, std::int64_t fallback, std::int64_t most = kMaxWidth,
                       std::int64_t least = 1);
  // `fallback` where the field is absent or null.
  std::int64_t size_or_null(std::string_view name, std::int64_t fallback);
  double number_or(std::string_view name, double fallback, const Range& range);
  bool flag_or(std::string_view name, bool fallback);  // null is false, and refused where absent is true
  std::string text_or(std::string_view name, std::string fallback);
  // A token id, or -1 for none. Of a list the first counts. Ids outside the vocabulary (a default kept in a small
  // model's file) stand for none.
  std::int64_t token_or(std::string_view name, std::int64_t fallback, std::int64_t vocabulary);

 private:
  const Json& object_;
  std::string what_;
  std::vector<Failure> failures_;
};

}  // namespace trireme::model
