#pragma once

// A model as its Hugging Face config.json describes it. Every field that changes the mathematics is read; a field or
// value that is not implemented and would change the result is refused by name (never defaulted silently).

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/env.h"
#include "base/error.h"
#include "base/json.h"

namespace trireme::model {

enum class Family { kGpt2, kLlama, kMistral, kQwen2, kQwen3, kGemma, kOlmo2, kPhi3 };
inline constexpr int kFamilyCount = static_cast<int>(Family::kPhi3) + 1;
// kRmsNormOffset: its weight holds the difference from one.
enum class NormKind { kLayerNorm, kRmsNorm, kRmsNormOffset };
// RMS norms of query and key before rotary: of every head, one weight for all, or of all heads of a row together.
enum class QkNorm { kNone, kHeads, kWhole };
// kGeluTanh: "gelu_new" and "gelu_pytorch_tanh" are the same function.
enum class Activation { kGeluTanh, kSilu, kRelu };
enum class PositionKind { kLearned, kRotary };
enum class RopeScalingKind { kNone, kLinear, kLlama3 };

struct RopeScaling {
  RopeScalingKind kind = RopeScalingKind::kNone;
  double factor = 1.0;
  double low_frequency_factor = 1.0;       // llama3
  double high_frequency_factor = 4.0;      // llama3
  std::int64_t original_positions = 8192;  // llama3
  friend bool operator==(const RopeScaling&, const RopeScaling&) = default;
};

struct Config {
  Family family = Family::kLlama;
  std::int64_t layers = 0;    // decoder layers
  std::int64_t hidden = 0;    // residual width
  std::int64_t heads = 0;     // query heads
  std::int64_t kv_heads = 0;  // key and value heads; heads % kv_heads == 0
  std::int64_t head_dim = 0;  // read if present; heads * head_dim need not equal hidden
  std::int64_t ffn = 0;       // width inside the MLP
  std::int64_t vocabulary = 0;
  std::int64_t max_positions = 0;
  NormKind norm = NormKind::kRmsNorm;
  double norm_epsilon = 1e-5;
  Activation activation = Activation::kSilu;
  bool gated_mlp = true;              // down(act(gate(x)) * up(x)) or down(act(up(x)))
  bool attention_input_bias = false;  // on query, key, value
  bool attention_output_bias = false;
  QkNorm qk_norm = QkNorm::kNone;
  bool mlp_bias = false;
  bool fused_projections = false;  // query, key and value are one tensor, gate and up another
  bool norms_outputs = false;      // a layer's norms are of what attention and MLP give, not of what they read
  double embedding_scale = 1.0;    // what token embeddings are multiplied by
  bool tied_embeddings = false;    // the head is the embedding's tensor
  PositionKind position = PositionKind::kRotary;
  double rope_theta = 10000.0;
  RopeScaling rope_scaling = {};
  // Positions that a token attends to, itself included, in decoder layers from first_window_layer on; 0: all before it.
  std::int64_t sliding_window = 0;
  std::int64_t first_window_layer = 0;
  double embedding_dropout = 0.0;
  double attention_dropout = 0.0;
  double residual_dropout = 0.0;
  double initializer_range = 0.02;
  std::int64_t bos_token = -1;  // -1: none, or outside the vocabulary
  std::int64_t eos_token = -1;  // the same; of a list the first

  std::int64_t query_width() const { return heads * head_dim; }
  std::int64_t kv_width() const { return kv_heads * head_dim; }
  friend bool operator==(const Config&, const Config&) = default;
};

// From the parsed file. `what` names the file in refusals. Absent fields take Hugging Face's defaults, except sizes
// without which there is no model: those are refused. Fields that do not change training's mathematics (use_cache,
// torch_dtype, ...) are passed over (model/config_fields.h); an unknown field is refused by name with the nearest known
// one, unless it is null, false, {} or []: such a value can switch nothing on.
Result<Config> parse_config(const Json& document, const std::string& what);
// The file that a path names: itself, or config.json in that directory.
std::string config_file(Env& env, const std::string& path);
// Reads path, or path/config.json if path is a directory.
Result<Config> load_config(Env& env, const std::string& path);
// The file itself, for readers of more model types than Family has.
Result<Json> load_config_document(Env& env, const std::string& path);
// As Hugging Face writes it; parse_config(to_hugging_face(c)) == c.
Json to_hugging_face(const Config& config);

// Inverse frequencies of rotary pairs, head_dim / 2 values in radians a position, scaled as rope_scaling says.
// Pair i turns dimensions (i, i + head_dim / 2), as Hugging Face's llama does. Computed in double, then float32 as
// transformers has it (inv_freq = 1 / theta^(2i / head_dim); llama3: transformers modeling_rope_utils).
std::vector<double> rotary_inverse_frequencies(const Config& config);

std::string family_name(Family family);  // "gpt2", "llama", ...: config.json's model_type
std::optional<Family> family_of(std::string_view name);
std::string family_names();  // "gpt2, llama, ..."
std::string activation_name(Activation activation);

}  // namespace trireme::model
