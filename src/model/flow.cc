#include "model/flow.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "base/check.h"
#include "model/flow_builder.h"

namespace trireme::model {
namespace {

constexpr std::array kOperationNames = std::to_array<std::string_view>(
    {"lookup", "positions", "dropout", "scale", "norm", "projection", "head norm", "norm of all heads", "rotary",
     "attention", "activation", "projection back", "sum", "loss"});
static_assert(kOperationNames.size() == kOperationKindCount);

using Value = FlowBuilder::Value;

constexpr std::string_view kMiddle = "middle";  // the residual stream after attention

std::int64_t window_of(const Config& config, int layer) {
  return layer >= config.first_window_layer ? config.sliding_window : 0;
}

// x + attention(norm(x)), then + mlp(norm(.)), as GPT-2 has it (Radford et al. 2019): one projection for query, key and
// value, a plain MLP, a bias everywhere; residual projections begin smaller by sqrt(2 layers).
UnitFlow gpt2_layer(const Config& c) {
  FlowBuilder f(c, UnitKind::kDecoder);
  const double deviation = c.initializer_range / std::sqrt(2.0 * static_cast<double>(c.layers));
  const Value x = f.input();
  const Value a = f.norm(x, Role::kNorm1Weight, "ln_1");
  const Value qkv = f.project(a, {Role::kQkvWeight,
                                  "attn.c_attn",
                                  {f.heads(), f.kv_heads(), f.kv_heads()},
                                  c.attention_input_bias,
                                  "query, key, value"});
  const Value o =
      f.project_back(f.attention({qkv}),
                     {Role::kAttentionOutputWeight, "attn.c_proj", {f.heads()}, c.attention_output_bias}, deviation);
  const Value middle = f.add(kMiddle, x, o, "attention output");
  const Value b = f.norm(middle, Role::kNorm2Weight, "ln_2");
  const Value up = f.project(b, {Role::kUpWeight, "mlp.c_fc", {f.features()}, c.mlp_bias});
  const Value down =
      f.project_back(f.activation(up), {Role::kDownWeight, "mlp.c_proj", {f.features()}, c.mlp_bias}, deviation);
  return f.finish(f.add("output", middle, down, "mlp output"));
}

// Query, key and value, turned by position; Qwen 3 norms query and key heads before they are turned, OLMo 2 all heads
// of a row together.
std::vector<Value> llama_heads(FlowBuilder& f, const Config& c, Value x) {
  const bool bias = c.attention_input_bias, normed = c.qk_norm != QkNorm::kNone;
  std::vector<Value> qkv =
      f.project(x, {{Role::kQueryWeight, "self_attn.q_proj", {f.heads()}, bias, normed ? "query before norm" : ""},
                    {Role::kKeyWeight, "self_attn.k_proj", {f.kv_heads()}, bias, normed ? "key before norm" : ""},
                    {Role::kValueWeight, "self_attn.v_proj", {f.kv_heads()}, bias}});
  if (normed) {
    qkv[0] = f.norm_heads(qkv[0], c.qk_norm, Role::kQueryNormWeight, "self_attn.q_norm", "query");
    qkv[1] = f.norm_heads(qkv[1], c.qk_norm, Role::kKeyNormWeight, "self_attn.k_norm", "key");
  }
  f.rotary({qkv[0], qkv[1]});
  return qkv;
}

Value llama_attention(FlowBuilder& f, const Config& c, Value x, std::int64_t window) {
  return f.project_back(f.attention(llama_heads(f, c, x), window),
                        {Role::kAttentionOutputWeight, "self_attn.o_proj", {f.heads()}, c.attention_output_bias},
                        c.initializer_range);
}

// down(act(gate(x)) * up(x)).
Value llama_mlp(FlowBuilder& f, const Config& c, Value x) {
  const std::vector<Value> up = f.project(x, {{Role::kUpWeight, "mlp.up_proj", {f.features()}, c.mlp_bias},
                                              {Role::kGateWeight, "mlp.gate_proj", {f.features()}, c.mlp_bias}});
  return f.project_back(f.activation(up[1], up[0]), {Role::kDownWeight, "mlp.down_proj", {f.features()}, c.mlp_bias},
                        c.initializer_range);
}

// The same as LLaMA has it (Touvron et al. 2023) and those that follow it, Mistral, Qwen, Gemma: RMS norms, heads
// turned by position, key and value heads shared by query heads, a gated MLP.
UnitFlow llama_layer(const Config& c, int layer) {
  FlowBuilder f(c, UnitKind::kDecoder);
  const Value x = f.input();
  const Value a = f.norm(x, Role::kNorm1Weight, "input_layernorm");
  const Value middle = f.add(kMiddle, x, llama_attention(f, c, a, window_of(c, layer)), "attention output");
  const Value b = f.norm(middle, Role::kNorm2Weight, "post_attention_layernorm");
  return f.finish(f.add("output", middle, llama_mlp(f, c, b), "mlp output"));
}

// OLMo 2 (2025) norms what attention and MLP give, not what they read.
UnitFlow olmo2_layer(const Config& c) {
  FlowBuilder f(c, UnitKind::kDecoder);
  const Value x = f.input();
  const Value a = f.norm(llama_attention(f, c, x, 0), Role::kNorm1Weight, "post_attention_layernorm");
  const Value middle = f.add(kMiddle, x, a, "attention output");
  const Value b = f.norm(llama_mlp(f, c, middle), Role::kNorm2Weight, "post_feedforward_layernorm");
  return f.finish(f.add("output", middle, b, "mlp output"));
}

// Phi-3 (2024): LLaMA's layer, with one tensor for query, key and value and one for gate and up.
UnitFlow phi3_layer(const Config& c, int layer) {
  FlowBuilder f(c, UnitKind::kDecoder);
  const Value x = f.input();
  const Value a = f.norm(x, Role::kNorm1Weight, "input_layernorm");
  const Value qkv = f.project(
      a, {Role::kQkvWeight, "self_attn.qkv_proj", {f.heads(), f.kv_heads(), f.kv_heads()}, false, "query, key, value"});
  f.rotary({qkv});
  const Value o = f.project_back(f.attention({qkv}, window_of(c, layer)),
                                 {Role::kAttentionOutputWeight, "self_attn.o_proj", {f.heads()}}, c.initializer_range);
  const Value middle = f.add(kMiddle, x, o, "attention output");
  const Value b = f.norm(middle, Role::kNorm2Weight, "post_attention_layernorm");
  const Value gate_up =
      f.project(b, {Role::kGateUpWeight, "mlp.gate_up_proj", {f.features(), f.features()}, false, "gate and up"});
  const Value down =
      f.project_back(f.activation(gate_up), {Role::kDownWeight, "mlp.down_proj", {f.features()}}, c.initializer_range);
  return f.finish(f.add("output", middle, down, "mlp output"));
}

UnitFlow decoder_layer(const Config& c, int layer) {
  if (c.family == Family::kGpt2) return gpt2_layer(c);
  if (c.norms_outputs) return olmo2_layer(c);
  return c.fused_projections ? phi3_layer(c, layer) : llama_layer(c, layer);
}

UnitFlow embedding(const Config& c) {
  FlowBuilder f(c, UnitKind::kEmbedding);
  const bool gpt2 = c.family == Family::kGpt2;
  Value x = f.lookup(gpt2 ? "wte.weight" : "embed_tokens.weight");
  if (c.embedding_scale != 1.0) x = f.scale(x, c.embedding_scale);
  if (c.position == PositionKind::kLearned) x = f.positions(x, "wpe.weight");
  return f.finish(f.dropout(x, "embedding", c.embedding_dropout));
}

UnitFlow head(const Config& c) {
  FlowBuilder f(c, UnitKind::kHead);
  const Value x = f.norm(f.input(), Role::kFinalNormWeight, c.family == Family::kGpt2 ? "ln_f" : "norm");
  f.loss(x, c.tied_embeddings ? std::nullopt : std::optional<std::string_view>("lm_head.weight"));
  return f.finish(-1);
}

}  // namespace

std::string_view operation_name(OperationKind kind) { return kOperationNames[static_cast<std::size_t>(kind)]; }

int flow_class(const Config& config, int unit) {
  switch (unit_kind(config, unit)) {
    case UnitKind::kEmbedding:
      return 0;
    case UnitKind::kHead:
      return 1;
    case UnitKind::kDecoder:
      return window_of(config, unit - 1) == window_of(config, 0) ? 2 : 3;
  }
  TRIREME_CHECK(false, "unit {}", unit);
}

std::vector<UnitFlow> flows_by_class(const Config& config) {
  std::vector<UnitFlow> flows{unit_flow(config, 0), unit_flow(config, unit_count(config) - 1)};
  for (int unit = 1; unit + 1 < unit_count(config); ++unit) {
    if (flow_class(config, unit) == static_cast<int>(flows.size())) flows.push_back(unit_flow(config, unit));
  }
  return flows;
}

std::vector<std::int64_t> units_by_class(const Config& config) {
  std::vector<std::int64_t> counts{1, 1};
  for (int unit = 1; unit + 1 < unit_count(config); ++unit) {
    const auto of = static_cast<std::size_t>(flow_class(config, unit));
    if (of >= counts.size()) counts.resize(of + 1);
    ++counts[of];
  }
  return counts;
}

UnitFlow unit_flow(const Config& config, int unit) {
  switch (unit_kind(config, unit)) {
    case UnitKind::kEmbedding:
      return embedding(config);
    case UnitKind::kDecoder:
      return decoder_layer(config, unit - 1);
    case UnitKind::kHead:
      return head(config);
  }
  TRIREME_CHECK(false, "unit {}", unit);
}

}  // namespace trireme::model
