#include "cli/not_computed.h"

#include <fmt/format.h>

namespace trireme::cli {

void note_not_computed(const model::ConfigReading& reading) {
  for (const Failure& failure : reading.not_computed) {
    fmt::print(stderr, "note: no count depends on it, but training refuses {}\n", failure.sentence());
  }
}

Json not_computed_json(const model::ConfigReading& reading) {
  Json sentences = Json::array();
  for (const Failure& failure : reading.not_computed) sentences.push_back(failure.sentence());
  return sentences;
}

}  // namespace trireme::cli
