#include "planner/csv.h"

#include <fmt/format.h>

namespace trireme::planner {
namespace {

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  bool done() const { return at_ >= text_.size(); }
  // The next record; false where a quote stays open.
  bool record(CsvRecord& out) {
    out = {.line = line_, .fields = {}};
    while (true) {
      std::string field;
      if (!read_field(field)) return false;
      out.fields.push_back(std::move(field));
      if (done()) return true;
      if (text_[at_++] == '\n') {
        ++line_;
        return true;
      }
    }
  }

 private:
  // Stops at the comma or line break after the field.
  bool read_field(std::string& field) {
    bool quoted = false;
    for (; !done(); ++at_) {
      const char c = text_[at_];
      if (c == '"') {
        if (quoted && at_ + 1 < text_.size() && text_[at_ + 1] == '"') {
          field += c;
          ++at_;
        } else {
          quoted = !quoted;
        }
        continue;
      }
      if (!quoted && (c == ',' || c == '\n')) break;
      if (!quoted && c == '\r' && at_ + 1 < text_.size() && text_[at_ + 1] == '\n') continue;
      if (c == '\n') ++line_;
      field += c;
    }
    return !quoted;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int line_ = 1;
};

}  // namespace

Result<CsvTable> parse_csv(std::string_view text, const std::string& what) {
  CsvTable table;
  Reader reader(text);
  bool header = true;
  while (!reader.done()) {
    CsvRecord record;
    const bool closed = reader.record(record);
    const std::string where = fmt::format("{}:{}", what, record.line);
    if (!closed) return Failure{.option = where, .value = "", .rule = "a quote is never closed", .nearest = ""};
    if (record.fields.size() == 1 && record.fields[0].empty()) continue;
    if (header) {
      table.header = std::move(record.fields);
      header = false;
      continue;
    }
    if (record.fields.size() != table.header.size()) {
      return Failure{.option = where,
                     .value = fmt::format("{} fields", record.fields.size()),
                     .rule = fmt::format("the header has {}", table.header.size()),
                     .nearest = "put quotes around a field that holds a comma"};
    }
    table.records.push_back(std::move(record));
  }
  if (header) return Failure{.option = what, .value = "", .rule = "there is no header line", .nearest = ""};
  return table;
}

}  // namespace trireme::planner
