#include "base/json.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <limits>
#include <unordered_set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/check.h"

namespace trireme {
namespace {

// Deeper documents are refused: values are destroyed and written recursively.
constexpr std::size_t kMaximumDepth = 200;

struct Place {
  std::int64_t line = 1;
  std::int64_t column = 1;
};

// Of the byte at `offset`, both counted from 1.
Place place_of(std::string_view text, std::size_t offset) {
  Place place;
  for (const char c : text.substr(0, offset)) {
    ++place.column;
    if (c == '\n') place = {place.line + 1, 1};
  }
  return place;
}

// The text's bytes, leaving a note of how far the parser has read: SAX events carry no position of their own.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, const char** reached) : at_(at), reached_(reached) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    *reached_ = ++at_;
    return *this;
  }
  CountingIterator operator++(int) {
    CountingIterator before = *this;
    ++*this;
    return before;
  }
  friend bool operator==(const CountingIterator& a, const CountingIterator& b) { return a.at_ == b.at_; }

 private:
  const char* at_;
  const char** reached_;
};

// "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error ..." -> "syntax error ...".
std::string reason_of(std::string_view message) {
  for (const std::string_view mark : {"column ", "] "}) {
    const std::size_t at = message.find(mark);
    if (at == std::string_view::npos) continue;
    if (mark == "] ") return std::string(message.substr(at + mark.size()));
    const std::size_t colon = message.find(": ", at);
    if (colon != std::string_view::npos) return std::string(message.substr(colon + 2));
  }
  return std::string(message);
}

// Builds the value from the parser's events.
class JsonBuilder {
 public:
  JsonBuilder(std::string_view text, std::string_view what) : text_(text), what_(what), reached_(text.data()) {}

  const char** reached() { return &reached_; }
  Json&& take() { return std::move(root_); }
  const Failure& failure() const { return failure_; }

  // Events of nlohmann's SAX interface; false ends the parse.
  bool null() { return add(Json()); }
  bool boolean(bool value) { return add(Json(value)); }
  bool number_integer(std::int64_t value) { return add(Json(value)); }
  bool number_unsigned(std::uint64_t value) {
    constexpr auto kLargest = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    if (value > kLargest)
      return refuse(start_of_number(), fmt::format("integer {} does not fit in 64 bits with sign", value));
    return add(Json(static_cast<std::int64_t>(value)));
  }
  bool number_float(double value, const std::string& written) {
    if (written.find_first_of(".eE") == std::string::npos) {
      return refuse(start_of_number(), fmt::format("integer {} does not fit in 64 bits with sign", written));
    }
    return add(Json(value));
  }
  bool string(std::string& value) { return add(Json(std::move(value))); }
  bool binary(const std::vector<std::uint8_t>&) { return refuse(offset(), "binary data"); }
  bool start_object(std::size_t) { return open(Json(Json::Object{})); }
  bool start_array(std::size_t) { return open(Json(Json::Array{})); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(std::string& name) {
    if (!stack_.back().keys.insert(name).second) {
      return refuse(start_of_string(), fmt::format("duplicate key \"{}\"", name));
    }
    key_ = std::move(name);
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception& error) {
    return refuse(position == 0 ? 0 : position - 1, reason_of(error.what()));
  }

  bool refuse(std::size_t at, std::string reason) {
    const Place place = place_of(text_, std::min(at, text_.size()));
    failure_ =
        Failure{std::string(what_), "", fmt::format("line {}, column {}: {}", place.line, place.column, reason), ""};
    return false;
  }

 private:
  std::size_t offset() const {  // of the last byte read
    const auto read = static_cast<std::size_t>(reached_ - text_.data());
    return read == 0 ? 0 : read - 1;
  }
  std::size_t start_of_number() const {  // of the number before the byte read last, or up to the text's end
    std::size_t at = offset();
    while (at > 0 && std::string_view("+-.eE0123456789").find(text_[at - 1]) != std::string_view::npos) --at;
    return at;
  }
  std::size_t start_of_string() const {  // of the string whose closing quote was read last
    std::size_t at = offset();
    while (at > 0 && (text_[at - 1] != '"' || (at > 1 && text_[at - 2] == '\\'))) --at;
    return at == 0 ? 0 : at - 1;
  }

  // Where a value goes: the root, the open list's end, or the open object under the pending key.
  Json& place(Json value) {
    if (stack_.empty()) return root_ = std::move(value);
    Json& parent = *stack_.back().value;
    if (parent.is_array()) return parent.as_array().emplace_back(std::move(value));
    return parent.as_object().emplace_back(std::move(key_), std::move(value)).second;
  }
  bool add(Json value) {
    place(std::move(value));
    return true;
  }
  bool open(Json value) {
    if (stack_.size() >= kMaximumDepth) {
      return refuse(offset(), fmt::format("nested deeper than {} levels", kMaximumDepth));
    }
    stack_.push_back({&place(std::move(value)), {}});  // stays valid: a parent grows only while no child is open
    return true;
  }
  bool close() {
    stack_.pop_back();
    return true;
  }

  struct Open {
    Json* value;
    std::unordered_set<std::string> keys;  // of an object, so that a header with many members stays linear
  };

  std::string_view text_;
  std::string_view what_;
  const char* reached_;
  Json root_;
  std::vector<Open> stack_;
  std::string key_;
  Failure failure_;
};

constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

// Length of the well-formed UTF-8 sequence at the start of `text` (Unicode 15, table 3-7), or 0.
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const auto follows = [&](std::size_t i, unsigned low = 0x80, unsigned high = 0xBF) {
    return byte(i) >= low && byte(i) <= high;
  };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return follows(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    const bool second = follows(1, first == 0xE0 ? 0xA0 : 0x80, first == 0xED ? 0x9F : 0xBF);
    return second && follows(2) ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    const bool second = follows(1, first == 0xF0 ? 0x90 : 0x80, first == 0xF4 ? 0x8F : 0xBF);
    return second && follows(2) && follows(3) ? 4 : 0;
  }
  return 0;
}

// Bytes that are no UTF-8 become the replacement character, so that the output is always legal JSON.
void write_string(std::string_view text, std::string& out) {
  out += '"';
  while (!text.empty()) {
    const char c = text.front();
    std::size_t length = 1;
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c == '\r') {
      out += "\\r";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else if ((length = utf8_length(text)) == 0) {
      length = 1;
      out += kReplacementCharacter;
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(length);
  }
  out += '"';
}

std::string double_text(double value) {
  TRIREME_CHECK(std::isfinite(value), "{} cannot be written as JSON", value);
  std::array<char, 32> buffer{};
  const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  std::string text(buffer.data(), result.ptr);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

class JsonWriter {
 public:
  JsonWriter(int indent, std::string& out) : indent_(indent), out_(out) {}

  void write(const Json& value, int level) {
    if (value.is_null()) {
      out_ += "null";
    } else if (value.is_bool()) {
      out_ += value.as_bool() ? "true" : "false";
    } else if (value.is_integer()) {
      out_ += std::to_string(value.as_integer());
    } else if (value.is_number()) {
      out_ += double_text(value.as_number());
    } else if (value.is_string()) {
      write_string(value.as_string(), out_);
    } else if (value.is_array()) {
      write_array(value.as_array(), level);
    } else {
      write_object(value.as_object(), level);
    }
  }

 private:
  static bool is_container(const Json& value) { return value.is_array() || value.is_object(); }

  void new_line(int level) {
    if (indent_ < 0) return;
    out_ += '\n';
    out_.append(static_cast<std::size_t>(indent_ * level), ' ');
  }

  // A list of scalars (a shape, say) stays on one line whatever the indent.
  void write_array(const Json::Array& items, int level) {
    const bool one_line = std::none_of(items.begin(), items.end(), is_container);
    out_ += '[';
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += indent_ >= 0 && one_line ? ", " : ",";
      if (!one_line) new_line(level + 1);
      write(items[i], level + 1);
    }
    if (!one_line) new_line(level);
    out_ += ']';
  }

  void write_object(const Json::Object& members, int level) {
    out_ += '{';
    for (std::size_t i = 0; i < members.size(); ++i) {
      if (i > 0) out_ += ',';
      new_line(level + 1);
      write_string(members[i].first, out_);
      out_ += indent_ >= 0 ? ": " : ":";
      write(members[i].second, level + 1);
    }
    if (!members.empty()) new_line(level);
    out_ += '}';
  }

  int indent_;
  std::string& out_;
};

template <class T, class Variant>
auto& get_as(Variant& value, std::string_view wanted, std::string_view is) {
  auto* held = std::get_if<T>(&value);
  if (held == nullptr) throw InternalError(fmt::format("Json: read as {}, but it is {}", wanted, is));
  return *held;
}

}  // namespace

std::string_view Json::type_name() const {
  constexpr std::array<std::string_view, 7> kNames{"null", "true or false", "integer", "number",
                                                   "text", "list",          "object"};
  return kNames[value_.index()];
}

bool Json::as_bool() const { return get_as<bool>(value_, "true or false", type_name()); }
std::int64_t Json::as_integer() const { return get_as<std::int64_t>(value_, "integer", type_name()); }
double Json::as_number() const {
  if (is_integer()) return static_cast<double>(as_integer());
  return get_as<double>(value_, "number", type_name());
}
const std::string& Json::as_string() const { return get_as<std::string>(value_, "text", type_name()); }
const Json::Array& Json::as_array() const { return get_as<Array>(value_, "list", type_name()); }
Json::Array& Json::as_array() { return get_as<Array>(value_, "list", type_name()); }
const Json::Object& Json::as_object() const { return get_as<Object>(value_, "object", type_name()); }
Json::Object& Json::as_object() { return get_as<Object>(value_, "object", type_name()); }

const Json* Json::find(std::string_view key) const {
  if (!is_object()) return nullptr;
  for (const Member& member : as_object()) {
    if (member.first == key) return &member.second;
  }
  return nullptr;
}

Json& Json::operator[](std::string_view key) {
  if (is_null()) value_ = Object{};
  Object& members = as_object();
  for (Member& member : members) {
    if (member.first == key) return member.second;
  }
  return members.emplace_back(std::string(key), Json()).second;
}

void Json::push_back(Json value) {
  if (is_null()) value_ = Array{};
  as_array().push_back(std::move(value));
}

std::string Json::dump(int indent) const {
  std::string out;
  JsonWriter(indent, out).write(*this, 0);
  return out;
}

Result<Json> parse_json(std::string_view text, std::string_view what) {
  JsonBuilder builder(text, what);
  const CountingIterator begin(text.data(), builder.reached());
  const CountingIterator end(text.data() + text.size(), builder.reached());
  if (!nlohmann::json::sax_parse(begin, end, &builder)) return builder.failure();
  return builder.take();
}

namespace {

// Letters more, less, other, or two neighbours swapped: 1 each. Capitals and dashes for underscores are no difference.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  const auto same = [](char x, char y) {
    const auto plain = [](char c) {
      return c == '-' ? '_' : c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    };
    return plain(x) == plain(y);
  };
  std::vector<std::size_t> before, last, row(b.size() + 1);  // distances of prefixes of a to prefixes of b
  for (std::size_t j = 0; j < row.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    before = std::exchange(last, row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = last[j - 1] + (same(a[i - 1], b[j - 1]) ? 0 : 1);
      row[j] = std::min({replaced, last[j] + 1, row[j - 1] + 1});
      const bool swapped = i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1]);
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row.back();
}

// How far a word of so many letters may be from the one that was meant: one in three, three at most.
std::size_t near(std::size_t letters) { return std::min<std::size_t>(letters / 3, 3); }

// "section.name": each part must be near by itself. Nothing where they are not.
std::optional<std::size_t> distance_where_near(std::string_view word, std::string_view candidate) {
  const auto within = [](std::string_view a, std::string_view b) -> std::optional<std::size_t> {
    const auto [shorter, longer] = std::minmax({a.size(), b.size()});
    if (longer - shorter > near(longer)) return std::nullopt;
    const std::size_t distance = edit_distance(a, b);
    return distance <= near(longer) ? std::optional(distance) : std::nullopt;
  };
  const std::size_t dot = word.rfind('.'), of_candidate = candidate.rfind('.');
  if (dot == std::string_view::npos || of_candidate == std::string_view::npos) return within(word, candidate);
  const auto section = within(word.substr(0, dot), candidate.substr(0, of_candidate));
  const auto name = within(word.substr(dot + 1), candidate.substr(of_candidate + 1));
  return section && name ? std::optional(*section + *name) : std::nullopt;
}

}  // namespace

std::string nearest_word(std::string_view word, const std::vector<std::string>& known) {
  std::string best;
  std::size_t best_distance = std::numeric_limits<std::size_t>::max();
  for (const std::string& candidate : known) {
    const std::optional<std::size_t> distance = distance_where_near(word, candidate);
    if (!distance || *distance >= best_distance) continue;
    best_distance = *distance;
    best = candidate;
  }
  return best;
}

}  // namespace trireme
