#pragma once

// Comparisons of runs of several ranks, for tests.

#include <string>

#include "support/tiny_world.h"

namespace trireme::testing {

// Law 1: every rank's ledger and the bytes that it sent are what the plan said. `what` names the run in failures.
void expect_as_planned(const WorldCurve& curve, const std::string& what);

bool same_weights(const WorldCurve& a, const WorldCurve& b);

// The largest ||difference|| / ||gradient|| over tensors, with the floor of law 2.
double worst_difference(const WorldCurve& a, const WorldCurve& b);

}  // namespace trireme::testing
