#pragma once

// The memory ledger as people read it, and as --json gives it.

#include <optional>
#include <string>

#include "base/json.h"
#include "base/ledger.h"

namespace trireme::report {

// One line a class with its own peak and what it holds at the peak of the sum; predicted alone, or predicted and
// counted side by side with a verdict; then the process's resident memory and what no ledger sees.
std::string ledger_table(const Ledger& predicted, const std::optional<Ledger>& counted,
                         const std::optional<Bytes>& resident);

// {"weights_bytes": peak, ..., "peak_sum_bytes": n}.
Json ledger_json(const Ledger& ledger);

}  // namespace trireme::report
