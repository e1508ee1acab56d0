#pragma once

// --memory-limit: what every rank of a run may hold. The answer of a run that needs more is the planner's: how much, of
// what, and which layouts of as many ranks would fit.

#include "engine/train/trainer.h"

namespace trireme::cli {

// Every rank's ledger against the limit (0: none). Failure with code kDoesNotFit, before anything is allocated.
Status check_memory_limit(Env& env, const train::ResolvedRun& run);

}  // namespace trireme::cli
