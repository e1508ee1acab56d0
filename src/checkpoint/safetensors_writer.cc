#include <algorithm>
#include <cstddef>

#include <fmt/format.h>

#include "base/check.h"
#include "base/json.h"
#include "base/units.h"
#include "checkpoint/safetensors.h"

namespace trireme::checkpoint {
