#pragma once

// Where two models compute different functions of the same weights.

#include <string>
#include <vector>

#include "model/config.h"

namespace trireme::model {

struct ConfigDifference {
  std::string field;  // as config.json has it
  std::string first;  // its value in each; "nothing": it is of the other family
  std::string second;
  friend bool operator==(const ConfigDifference&, const ConfigDifference&) = default;
};

// Fields in which two configs differ, by name. Passed over: what changes no output of the model (dropout, the
// initialiser, special tokens), and the positions that a rotary model was meant for, unless its rotary angles follow
// from them.
std::vector<ConfigDifference> differences_of(const Config& first, const Config& second);

}  // namespace trireme::model
