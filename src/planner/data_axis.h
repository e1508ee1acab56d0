#pragma once

// What the data and the pipeline axis add to a step: sends, gathers and reductions of each micro-batch, the reduction
// at the end, the update. An exchange hides behind compute as far as the framework overlaps it; what is left is
// exposed.

#include "planner/choice.h"

namespace trireme::planner {

// A collective's time as a line in its bytes.
struct Line {
  double fixed = 0;
  double per_byte = 0;
  double operator()(double bytes) const { return fixed + per_byte * bytes; }
};
// What the data and the pipeline axis cost in one placement: (tp, pp, dp, axis order).
struct AxisLines {
  Line gather;        // all-gather, of the whole buffer's bytes
  Line scatter;       // reduce-scatter, by the framework's algorithm
  Line send_inside;   // one message between neighbouring stages
  Line send_between;  // the same across hosts
};
AxisLines axis_lines(const Problem& problem, const Links& links, const Choice& choice);
// Of a message of `bytes` from a stage to another.
double send_seconds(const Problem& problem, const AxisLines& lines, const Choice& choice, double bytes, int stage,
                    int next);

// Work of a stage (or a chunk) on one micro-batch, without sends and exchanges of the data axis.
StageTimes work_times(const UnitTimes& units, const StageShape& shape);

// ZeRO 3 gathers parameters, and reduce = microbatch reduces gradients, for every micro-batch.
bool exchanges_each_micro_batch(const Choice& choice);

// Exposed seconds of one micro-batch on one stage.
struct MicroBatchExchange {
  double gathers_forward = 0;
  double gathers = 0;  // both passes
  double reduce = 0;
};
MicroBatchExchange micro_batch_exchange(const Problem& problem, const AxisLines& lines, const Choice& choice,
                                        const UnitElements& elements, const StageShape& shape, const UnitTimes& units);
// The same from a stage's work times, added to them.
void add_exchanges(const Problem& problem, const AxisLines& lines, const Choice& choice, const UnitElements& elements,
                   const StageShape& shape, StageTimes& times);

struct EndOfStep {
  double data = 0;     // exposed reduction, and the sum of tied copies
  double gathers = 0;  // of updated weights (ZeRO 1 and 2)
  double optimizer = 0;
  double sum() const { return data + gathers + optimizer; }
};
EndOfStep end_of_step(const Problem& problem, const AxisLines& lines, const Choice& choice,
                      const UnitElements& elements, const StagePlan& plan, const PipelineCosts& costs);

GroupPlace data_place(const Problem& problem, const Choice& choice);
// Elements of a stage's shard units on one rank, before ZeRO.
std::int64_t stage_elements(const UnitElements& elements, const StageShape& shape, const Choice& choice);

}  // namespace trireme::planner
