#pragma once

// Test support: small models, which tests change where they need to.

#include <cmath>

#include "model/config.h"

namespace trireme::model {

// 2 layers, 3 heads of 8, hidden 24, ffn 96, vocabulary 53, biases, tied embeddings.
inline Config small_gpt2() {
  Config c;
  c.family = Family::kGpt2;
  c.layers = 2;
  c.hidden = 24;
  c.heads = c.kv_heads = 3;
  c.head_dim = 8;
  c.ffn = 96;
  c.vocabulary = 53;
  c.max_positions = 32;
  c.norm = NormKind::kLayerNorm;
  c.activation = Activation::kGeluTanh;
  c.gated_mlp = false;
  c.attention_input_bias = c.attention_output_bias = c.mlp_bias = true;
  c.tied_embeddings = true;
  c.position = PositionKind::kLearned;
  return c;
}

// 2 layers, 4 heads of 4 on 2 key/value heads, hidden 16, ffn 32, vocabulary 53, untied.
inline Config small_llama() {
  Config c;
  c.layers = 2;
  c.hidden = 16;
  c.heads = 4;
  c.kv_heads = 2;
  c.head_dim = 4;
  c.ffn = 32;
  c.vocabulary = 53;
  c.max_positions = 64;
  return c;
}

// A llama as another rotary family has it.
inline Config as_family(Config c, Family family) {
  c.family = family;
  switch (family) {
    case Family::kGpt2:
    case Family::kLlama:
      break;
    case Family::kMistral:
      c.sliding_window = 5;
      break;
    case Family::kQwen2:  // windows in all layers but the first
      c.attention_input_bias = true;
      c.sliding_window = 3;
      c.first_window_layer = 1;
      break;
    case Family::kQwen3:
      c.qk_norm = QkNorm::kHeads;
      break;
    case Family::kGemma:
      c.norm = NormKind::kRmsNormOffset;
      c.activation = Activation::kGeluTanh;
      c.embedding_scale = std::sqrt(static_cast<double>(c.hidden));
      c.tied_embeddings = true;
      break;
    case Family::kOlmo2:
      c.qk_norm = QkNorm::kWhole;
      c.norms_outputs = true;
      break;
    case Family::kPhi3:
      c.fused_projections = true;
      c.sliding_window = 4;
      c.residual_dropout = 0.1;
      break;
  }
  return c;
}

inline constexpr Family kRotaryFamilies[] = {Family::kLlama, Family::kMistral, Family::kQwen2, Family::kQwen3,
                                             Family::kGemma, Family::kOlmo2,   Family::kPhi3};

}  // namespace trireme::model
