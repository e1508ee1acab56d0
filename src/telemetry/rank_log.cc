#include "telemetry/rank_log.h"

#include <fmt/format.h>

#include "base/env.h"

namespace trireme::telemetry {

std::string rank_log_of(const std::string& out, int rank) {
  return join_path(join_path(out, "logs"), fmt::format("rank-{:05}.log", rank));
}

}  // namespace trireme::telemetry
