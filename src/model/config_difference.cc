#include "model/config_difference.h"

#include <algorithm>
#include <string_view>

namespace trireme::model {
namespace {

constexpr std::string_view kWithoutEffect[] = {
    "architectures",  // follows from model_type
    "attention_dropout", "attn_pdrop",   "embd_pdrop",   "resid_pdrop", "initializer_range",
    "bos_token_id",      "eos_token_id", "pad_token_id", "torch_dtype",
};

bool angles_follow_from_positions(const Config& config) {
  const RopeScalingKind kind = config.rope_scaling.kind;
  return kind != RopeScalingKind::kNone && kind != RopeScalingKind::kLinear && kind != RopeScalingKind::kLlama3;
}

bool has_effect(std::string_view field, const Config& first, const Config& second) {
  if (field == "max_position_embeddings") {
    return angles_follow_from_positions(first) || angles_follow_from_positions(second);
  }
  return std::ranges::count(kWithoutEffect, field) == 0;
}

std::string text_of(const Json* value) { return value == nullptr ? "nothing" : value->dump(); }

}  // namespace

std::vector<ConfigDifference> differences_of(const Config& first, const Config& second) {
  const Json one = to_hugging_face(first), other = to_hugging_face(second);
  if (first.family != second.family) return {{"model_type", family_name(first.family), family_name(second.family)}};
  std::vector<std::string> fields;
  for (const Json* document : {&one, &other}) {
    for (const auto& [field, value] : document->as_object()) {
      if (std::ranges::count(fields, field) == 0 && has_effect(field, first, second)) fields.push_back(field);
    }
  }
  std::vector<ConfigDifference> differences;
  for (const std::string& field : fields) {
    const std::string a = text_of(one.find(field)), b = text_of(other.find(field));
    if (a != b) differences.push_back({field, a, b});
  }
  return differences;
}

}  // namespace trireme::model
