// A model's config.json of any bytes: a Config, or a refusal with a sentence. What is accepted reads back from what
// to_hugging_face writes of it; what is computed is counted too, and whatever is counted has a table.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/json.h"
#include "model/config_reading.h"
#include "model/parameters.h"

namespace trireme::model {
namespace {

void fuzz(std::string_view text) {
  const Result<Json> document = parse_json(text, "config.json");
  if (!document) {
    TRIREME_CHECK(!document.failure().sentence().empty(), "a refusal without words");
    return;
  }
  const Result<Config> config = parse_config(*document, "config.json");
  const Result<ConfigReading> reading = read_config(*document, "config.json");
  TRIREME_CHECK(reading.ok() || !config.ok(), "is computed, and not counted");
  if (reading) {
    TRIREME_CHECK(reading->not_computed.empty() == config.ok(), "{} reasons", reading->not_computed.size());
    if (reading->config.layers <= 100) TRIREME_CHECK(make_parameter_table(reading->config).total() > 0);
  }
  if (!config) {
    TRIREME_CHECK(!config.failure().sentence().empty(), "a refusal without words");
    return;
  }
  const Json written = to_hugging_face(*config);
  const Result<Config> again = parse_config(written, "written");
  TRIREME_CHECK(again.ok(), "{} is refused: {}", written.dump(), again.failure().sentence());
  TRIREME_CHECK(*again == *config, "{} reads back as another model", written.dump());
}

}  // namespace
}  // namespace trireme::model

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  trireme::model::fuzz({reinterpret_cast<const char*>(data), size});
  return 0;
}
