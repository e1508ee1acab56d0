#pragma once

// The log of each rank of a run: written by the rank, and by the supervisor where the rank could not.

#include <string>

namespace trireme::telemetry {

std::string rank_log_of(const std::string& out, int rank);  // logs/rank-00003.log of a run directory

}  // namespace trireme::telemetry
