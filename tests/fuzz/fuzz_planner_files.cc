// A calibration file or a table of published runs of any bytes: a value, or a refusal with a sentence. The first byte
// says which of the two.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/json.h"
#include "planner/calibration.h"
#include "planner/published.h"

namespace trireme::planner {
namespace {

template <class T>
void value_or_words(const Result<T>& result) {
  TRIREME_CHECK(result.ok() || !result.failure().sentence().empty(), "a refusal without words");
}

void fuzz(std::string_view text) {
  if (text.empty()) return;
  const std::string_view body = text.substr(1);
  if (text[0] % 2 == 0) return value_or_words(parse_published(body, "runs.csv"));
  const Result<Json> document = parse_toml(body, "calibration.toml");
  if (!document) return value_or_words(document);
  value_or_words(parse_calibration(*document, "calibration.toml", default_calibration()));
}

}  // namespace
}  // namespace trireme::planner

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  trireme::planner::fuzz({reinterpret_cast<const char*>(data), size});
  return 0;
}
