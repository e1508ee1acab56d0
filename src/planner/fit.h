#pragma once

// The constants of a device from a measured step: what it took against what the formulas give at the peaks.

#include "planner/choice.h"
#include "planner/problem.h"

namespace trireme::planner {

// Of one rank, alone: seconds of a step in products, in attention, and in all else.
struct MeasuredStep {
  double products_s = 0;
  double attention_s = 0;
  double other_s = 0;
};

// Of the problem's device: its three efficiencies, each between 0.01 and 1, so that the layout's predicted step is the
// measured one where they are not cut off; no half extent, no launches, since these are in what was measured; links as
// they were measured, too. The layout: of one rank.
DeviceConstants fit_device(Problem problem, const Choice& layout, const MeasuredStep& measured);

}  // namespace trireme::planner
