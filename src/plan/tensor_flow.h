#pragma once

// What a unit does along the tensor axis, as a value: the steps of its passes in order, the values that each reads and
// writes, its parameters by role, and the exchanges between ranks. Whoever asks what a pass exchanges asks here; law 1
// holds it to what the layers do.
//
// The check follows the steps with the state of each value instead of numbers, as every rank would hold it, and so
// finds the states of the gradients: what the parameter table declares must be what the layers compute.

#include <cstdint>
#include <string_view>
#include <vector>

#include "model/parameters.h"
#include "plan/layout.h"
#include "plan/program.h"

namespace trireme::plan {

enum class FlowOp {
  kLookup,        // rows of the token embedding
  kAddPositions,  // learned positions
  kLinear,        // without its bias
  kAddBias,
  kNorm,          // reads a row of the residual stream whole
  kHeadNorm,      // query and key norms: one weight for all heads
  kElementwise,   // activation, dropout, residual sum, rotary: all operands lie alike
  kAttention,     // reads query, key and value, or the three in one
  kRowMaximum,    // of a block of logits
  kSoftmaxSum,    // reads logits and maxima; writes sums of exponentials and targets' logits
  kCrossEntropy,  // reads maxima and sums
  kCrossEntropyGradient,
  // Backward: of the input, and of the parameters.
  kLinearInputGradient,
  kLinearWeightGradient,  // reads the input and the output's gradient
  kBiasGradient,
  kNormGradient,  // reads the output's gradient, the input, and what else is added to the input's gradient
  kHeadNormGradient,
  kAttentionGradient,  // reads the output's gradient and what kAttention read; writes a gradient for each of these
  kLookupGradient,
  kPositionsGradient,
  // Exchanges, in place or into another value.
  kAllReduce,
  kAllReduceMaximum,
  kReduceScatter,
  kAllGather,
};
std::string_view flow_op_name(FlowOp op);
bool is_exchange(FlowOp op);

// Elements that an exchange is over.
enum class FlowSize {
  kNone,
  kHidden,         // [tokens of the micro-batch, hidden]
  kBlockRows,      // once for each block of logit_rows(): its rows
  kTwiceBlockRows  // the same, two a row
};

struct FlowStep {
  Op pass = Op::kForward;  // kForward, kEvaluateLoss, kRecompute, kBackwardInput or kBackwardWeight
  FlowOp op = FlowOp::kElementwise;
  std::vector<std::string_view> reads;
  std::vector<std::string_view> writes;
  std::vector<model::Role> parameters = {};  // read, or those whose gradients it gives
  bool accumulate = false;                   // adds to what it writes
  FlowSize size = FlowSize::kNone;
};

// The passes of a unit of a kind, in order of execution: forward, the loss alone (head), recompute, backward-input,
// backward-weight. Values that outlive their pass bear the names of the activation table (model::saved_name), others
// end with it. Written for any tp; a group of one exchanges nothing.
using UnitFlow = std::vector<FlowStep>;
// What the forward pass and backward-input give to the units after and before this one.
inline constexpr std::string_view kFlowOutput = "output";
inline constexpr std::string_view kFlowInputGradient = "input gradient";
UnitFlow unit_flow(const model::Config& config, const Layout& layout, model::UnitKind kind);
// Its exchanges alone.
UnitFlow exchanges_of(const UnitFlow& flow);

// The states of a value over the tensor ranks.
//   kWhole: the same on every rank. kSplit: each rank has its heads, features or vocabulary rows, of all tokens. kRows:
//   its own tokens, all columns (sequence parallelism). kPartial: a summand of the whole. kPartialMaximum: the maximum
//   of all ranks is the whole.
enum class FlowState { kWhole, kSplit, kRows, kPartial, kPartialMaximum };

// Follows a flow for one unit of the table. Refused (kInternal), naming unit and pass, value, step and parameter: a
// partial value, a split or some rows used as a whole; a whole one summed again; a kept value that is cut otherwise
// than the activation table says, or read after it was dropped; a parameter whose gradient is missing, given twice, or
// of another state than tensor_gradient_state(), so that its sum over the ranks would be missed or be one too many.
Status check_unit_flow(const model::ParameterTable& table, const Layout& layout, int unit, const UnitFlow& flow);
// All units of the model. At tp = 1 nothing is cut, and there is nothing to refuse.
Status check_tensor_flow(const model::ParameterTable& table, const Layout& layout);

}  // namespace trireme::plan
