#pragma once

// The steps of a unit's passes, derived from its flow: what runs forward, what backward needs for the unit's input and
// for its weights, the loss alone. One rank's view: who shares tensors over ranks adds exchanges (plan/tensor_flow.h).
//
// Values that are read in a later pass than they are written are what a unit keeps (activations.h).

#include <string>
#include <string_view>
#include <vector>

#include "model/flow.h"

namespace trireme::model {

enum class FlowOp {
  kLookup,  // rows of the token embedding
  kAddPositions,
  kLinear,  // without its bias
  kAddBias,
  kNorm,
  kNormAgain,  // from its input and the kept statistics
  kHeadNorm,
  kSquareSums,  // of rows whose columns ranks share out
  kNormOfSums,  // reads its input and those; writes the statistics too
  kScale,
  kRotary,
  kAttention,
  kActivation,
  kDropout,
  kAdd,  // residual + dropout(x + bias)
  // Of a block of rows of logits.
  kRowMaximum,
  kSoftmaxSum,  // reads logits and maxima; writes sums of exponentials and targets' logits
  kCrossEntropy,
  kCrossEntropyGradient,
  // Backward: of the input, and of the parameters.
  kLinearInputGradient,
  kLinearWeightGradient,  // reads the input and the output's gradient
  kBiasGradient,
  kNormGradient,      // reads the output's gradient, the input, its statistics, and what else is added to the gradient
  kHeadNormGradient,  // reads the output's gradient and the input
  kNormDots,          // of rows: reads the output's gradient, the input and its statistics
  kNormGradientOfDots,  // reads those too
  kScaleGradient,
  kRotaryGradient,
  kAttentionGradient,  // reads the output's gradient and what kAttention read and wrote
  kActivationGradient,
  kDropoutGradient,
  kSumGradients,
  kLookupGradient,
  kPositionsGradient,
  // Exchanges over the tensor axis, in place or into another value.
  kAllReduce,
  kAllReduceMaximum,
  kReduceScatter,
  kAllGather,
};
inline constexpr int kFlowOpCount = static_cast<int>(FlowOp::kAllGather) + 1;
std::string_view flow_op_name(FlowOp op);
bool is_exchange(FlowOp op);
// Products with a weight or over rows: they need all rows of what they read of the residual stream, and what they write
// there is a sum over what the tensor axis cuts.
bool is_product(FlowOp op);

// Values of the loss, of the rows of a block at a time (losses: of all rows).
inline constexpr std::string_view kLogits = "logits";
inline constexpr std::string_view kRowMaxima = "row maxima";
inline constexpr std::string_view kRowSums = "sums of exponentials and targets' logits";
inline constexpr std::string_view kLosses = "losses";

enum class FlowPass { kForward, kLoss, kRecompute, kBackwardInput, kBackwardWeight };
inline constexpr int kFlowPassCount = static_cast<int>(FlowPass::kBackwardWeight) + 1;

struct FlowStep {
  FlowPass pass = FlowPass::kForward;
  FlowOp op = FlowOp::kAdd;
  std::vector<std::string> reads;
  std::vector<std::string> writes;
  std::vector<Role> parameters = {};  // read, or those whose gradients it gives
  bool accumulate = false;            // adds to what it writes
  bool by_block = false;              // once for each block of rows of the logits
  int operation = -1;                 // of the flow, that it is of
};

struct FlowSteps {
  std::vector<FlowValue> values;  // of the flow, their gradients, and the loss's
  std::vector<FlowStep> steps;    // by pass, in order of execution
};
// The gradient of the unit's output is there when backward begins ("output gradient"), that of its input is what
// backward-input is for ("input gradient"). An embedding has no backward-input; a head has all of its backward there,
// while a block's logits exist.
FlowSteps flow_steps(const UnitFlow& flow);
std::string gradient_name(std::string_view value);

}  // namespace trireme::model
