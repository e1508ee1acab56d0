#pragma once

// A unit (embedding, a decoder layer, head) as a flow: an ordered list of operations over named values. What a unit
// holds, keeps, computes, moves and exchanges is derived from it: parameters (parameters.h), the steps of its passes
// (flow_steps.h), saved activations and what recompute drops (activations.h), costs (operation_cost.h, flops.h); bound
// to a layout, exchanges (plan/tensor_flow.h) and where values lie (plan/unit_program.h).

#include <cstdint>
#include <string>
#include <vector>

#include "model/parameters.h"

namespace trireme::model {

// T: tokens of a micro-batch; h: hidden.
enum class OperationKind {
  kLookup,       // [T, h]: the token embedding's rows; each tensor rank has some of the rows
  kPositions,    // [T, h]: x + a row of a learned table
  kDropout,      // of x
  kScale,        // x times a constant
  kNorm,         // [T, h]: of each row, with a weight and, layer norm, a bias; writes statistics [T, 2] too
  kProject,      // y_i = x W_i (+ b_i): out of the residual stream into heads or features, which ranks share out
  kHeadNorm,     // RMS norm of each head of x, one weight for all
  kWholeNorm,    // RMS norm of all heads of a row together: a sum over ranks; writes statistics [T, 2] too
  kRotary,       // turns the heads of x by position, in place
  kAttention,    // causal, of query, key and value or of one value that holds the three; log-sum-exp too
  kActivation,   // act(up), or act(gate) * up
  kProjectBack,  // y = x W: a sum over heads or features, whose parts the ranks have
  kAdd,          // residual + dropout(x + bias)
  kLoss,         // cross-entropy of x W, by blocks of rows
};
inline constexpr int kOperationKindCount = static_cast<int>(OperationKind::kLoss) + 1;
std::string_view operation_name(OperationKind kind);

// Row-major, a row a token.
struct FlowValue {
  std::string name;  // "query": unique in its unit
  std::int64_t columns = 0;
  // How the tensor axis cuts the columns; empty: not at all. Then it is of the residual stream, of which a rank has all
  // rows, or its own under sequence parallelism.
  std::vector<SplitBlock> blocks = {};
  bool all_rows = false;     // of all tokens, whole on every rank
  bool statistics = false;   // in the type of the state (plan::state_dtype), whatever activations are
  bool heads_first = false;  // [columns, T]
  bool in_stream() const { return blocks.empty() && !all_rows; }
};

struct Operation {
  OperationKind kind = OperationKind::kAdd;
  std::vector<int> reads = {};  // indices into UnitFlow::values
  std::vector<int> writes = {};
  std::vector<Parameter> parameters = {};  // names are those inside the unit
  NormKind norm = NormKind::kRmsNorm;      // kNorm
  std::string dropout = {};                // kDropout, kAdd, kAttention: its stream's purpose
  double probability = 0.0;                // of that dropout
  double factor = 1.0;                     // kScale
  std::int64_t window = 0;                 // kAttention: positions that a token attends to; 0: all before it
};

struct UnitFlow {
  UnitKind kind = UnitKind::kDecoder;
  std::vector<FlowValue> values;
  std::vector<Operation> operations;
  int input = -1;  // the unit's input and output among the values; -1: none
  int output = -1;
  std::int64_t vocabulary = 0;  // kLoss: columns of the logits
};

// unit: index in the model.
UnitFlow unit_flow(const Config& config, int unit);

// Units of the same flow but for their parameters' names: 0 is the embedding, 1 the head, 2 and on decoder layers.
int flow_class(const Config& config, int unit);
std::vector<UnitFlow> flows_by_class(const Config& config);
std::vector<std::int64_t> units_by_class(const Config& config);  // how many of each

}  // namespace trireme::model
