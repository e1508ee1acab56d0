#pragma once

// Writes flows: one call an operation, in order. Shapes, cuts, gradients' states and initialisers of parameters follow
// from the operation that they belong to.

#include <optional>
#include <string_view>

#include "model/flow.h"

namespace trireme::model {

class FlowBuilder {
 public:
  using Value = int;  // index of a value
  // A projection's weight, the module's name inside the unit ("self_attn.q_proj"), and what its output is cut by.
  struct Projection {
    Role weight;
    std::string_view name;
    std::vector<SplitBlock> blocks;
    bool bias = false;
    std::string_view output = {};  // name of what it writes; empty: after the weight's role ("query")
  };

  // Keeps the reference.
  FlowBuilder(const Config& config, UnitKind kind) : config_(config) { flow_.kind = kind; }

  SplitBlock heads() const { return {PieceKind::kHeads, config_.heads, config_.head_dim}; }
  SplitBlock kv_heads() const { return {PieceKind::kKvHeads, config_.kv_heads, config_.head_dim}; }
  SplitBlock features() const { return {PieceKind::kFeatures, config_.ffn, 1}; }
  SplitBlock vocabulary() const { return {PieceKind::kVocabulary, config_.vocabulary, 1}; }

  Value input();
  Value lookup(std::string_view name);
  Value positions(Value x, std::string_view name);
  Value dropout(Value x, std::string_view purpose, double probability);
  Value scale(Value x, double factor);
  // Named after the weight's role: "norm 1 output".
  Value norm(Value x, Role weight, std::string_view name);
  std::vector<Value> project(Value x, const std::vector<Projection>& projections);
  Value project(Value x, const Projection& projection) { return project(x, std::vector{projection}).front(); }
  // Of every head of x, or of all heads of a row together.
  Value norm_heads(Value x, QkNorm kind, Role weight, std::string_view name, std::string_view output);
  void rotary(std::vector<Value> x);
  Value attention(std::vector<Value> parts, std::int64_t window = 0);
  Value activation(Value up);  // or of gate and up in one value, one behind the other
  Value activation(Value gate, Value up);
  // Its bias, where it has one, is added where its sum is: by add().
  Value project_back(Value x, const Projection& projection, double deviation);
  Value add(std::string_view name, Value residual, Value x, std::string_view dropout_purpose);
  // own_weight: none where the head reads the embedding's.
  void loss(Value x, std::optional<std::string_view> own_weight);

  UnitFlow finish(Value output);

 private:
  Value value(FlowValue value);
  Value stream(std::string name) { return value({.name = std::move(name), .columns = config_.hidden}); }
  Operation& operation(OperationKind kind, std::vector<Value> reads, std::vector<Value> writes);
  const FlowValue& at(Value value) const { return flow_.values[static_cast<std::size_t>(value)]; }
  Parameter matrix(const Projection& projection, bool out) const;
  void rank_whole(Operation& operation, Role role, std::string name, std::vector<std::int64_t> shape,
                  Initialiser init) const;

  const Config& config_;
  UnitFlow flow_;
  std::optional<Parameter> bias_behind_sum_;  // of the last project_back()
};

}  // namespace trireme::model
