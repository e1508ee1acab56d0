#pragma once

// Comma-separated values with a header line (RFC 4180): quoted fields may hold commas, line breaks and doubled quotes.

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace trireme::planner {

struct CsvRecord {
  int line = 0;  // of the file, from 1, where the record starts
  std::vector<std::string> fields;
};
struct CsvTable {
  std::vector<std::string> header;
  std::vector<CsvRecord> records;  // each with as many fields as the header
};

// `what` names the file in refusals: no header, an open quote, a record with another number of fields.
Result<CsvTable> parse_csv(std::string_view text, const std::string& what);

}  // namespace trireme::planner
