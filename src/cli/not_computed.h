#pragma once

// What a command that counts says of a model that this build does not compute.

#include "base/json.h"
#include "model/config_reading.h"

namespace trireme::cli {

// On standard error, a line for each: the answer stands, training refuses.
void note_not_computed(const model::ConfigReading& reading);
// The same sentences, as a list.
Json not_computed_json(const model::ConfigReading& reading);

}  // namespace trireme::cli
