// What a connection sends, any bytes of it: messages, or a refusal with a sentence, however it is cut. What is accepted
// is written as a text that reads back as the same message. The first byte says how long the pieces are.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/json.h"
#include "telemetry/control_message.h"

namespace trireme::telemetry {
namespace {

// All messages of the reader; false once it has refused.
bool read_all(FrameReader& reader) {
  while (true) {
    const Result<std::optional<Message>> next = reader.next();
    if (!next) {
      TRIREME_CHECK(!next.failure().sentence().empty(), "a refusal without words");
      return false;
    }
    if (!*next) return true;
    const std::string written = to_json(**next).dump();
    const Message again = message_from_json(parse_json(written, "written").or_throw()).or_throw();
    TRIREME_CHECK(to_json(again).dump() == written, "{} reads back as another message", written);
  }
}

void fuzz(std::string_view text) {
  if (text.empty()) return;
  const std::size_t piece = 1 + static_cast<unsigned char>(text[0]);
  text.remove_prefix(1);
  FrameReader reader(kMostHelloBytes);
  while (!text.empty()) {
    reader.add(text.substr(0, piece));
    text.remove_prefix(std::min(piece, text.size()));
    if (read_all(reader)) continue;
    reader.add(text);
    TRIREME_CHECK(!read_all(reader), "a message after a refusal");
    return;
  }
}

}  // namespace
}  // namespace trireme::telemetry

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  trireme::telemetry::fuzz({reinterpret_cast<const char*>(data), size});
  return 0;
}
