#pragma once

// Test support: small models of both families, which tests change where they need to.

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

}  // namespace trireme::model
