#pragma once

// What a unit does along the tensor axis: its steps (model/flow_steps.h) bound to a layout. Whoever asks what a pass
// exchanges asks here; law 1 holds it to what the layers do.
//
// Exchanges follow from the values. A product needs all rows of what it reads of the residual stream: gathered, where
// ranks hold rows of their own ("norm 1 output, all rows"). What it writes there is a sum over what ranks share out:
// summed before it is read, in place, or into each rank's own rows ("down projection, parts" into "down projection").
//
// The check follows the steps with the state of each value instead of numbers, as every rank would hold it, and so
// finds the states of the gradients: what the parameter table declares must be what the layers compute.

#include <optional>

#include "model/flow_steps.h"
#include "plan/layout.h"
#include "plan/program.h"

namespace trireme::plan {

// All passes, recompute among them, with their exchanges. Written for any tp; a group of one exchanges nothing.
model::FlowSteps bind_flow(const model::UnitFlow& flow, const Layout& layout);

// The pass of a unit that an instruction of the program is, or none.
std::optional<model::FlowPass> pass_of(Op op);

// The states of a value over the tensor ranks.
//   kWhole: the same on every rank. kSplit: each rank has its heads, features or vocabulary rows, of all tokens. kRows:
//   its own tokens, all columns (sequence parallelism). kPartial: a summand of the whole. kPartialMaximum: the maximum
//   of all ranks is the whole.
enum class FlowState { kWhole, kSplit, kRows, kPartial, kPartialMaximum };

// Follows the steps of one unit of the table. Refused (kInternal), naming unit and pass, value, step and parameter: a
// partial value, a split or some rows used as a whole; a whole one summed again; a kept value that is cut otherwise
// than its flow says, or read after it was dropped; a parameter whose gradient is missing, given twice, or of another
// state than tensor_gradient_state(), so that its sum over the ranks would be missed or be one too many.
Status check_unit_flow(const model::ParameterTable& table, const Layout& layout, int unit,
                       const model::FlowSteps& steps);
// All units of the model. At tp = 1 nothing is cut, and there is nothing to refuse.
Status check_tensor_flow(const model::ParameterTable& table, const Layout& layout);

}  // namespace trireme::plan
