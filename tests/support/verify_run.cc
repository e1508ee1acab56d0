#include "support/verify_run.h"

#include "checkpoint/safetensors_writer.h"
#include "engine/data/tokenize.h"
#include "model/test_configs.h"

namespace trireme::testing {

VerifyRun::VerifyRun() {
  std::string text;
  for (int i = 0; i < 400; ++i)
    text += "the quick brown fox jumps over lazy dog number " + std::to_string(i * 7) + "\n";
  use_text(text);
  use_family("llama");
}

void VerifyRun::use_text(const std::string& text) {
  env_.put_file("text.txt", text);
  data::tokenize_text(env_, {.text_path = "text.txt", .out_directory = "data", .progress = {}}).or_throw();
}

model::Config VerifyRun::config(const std::string& family) {
  TRIREME_CHECK(family == "llama" || family == "gpt2", "no family {}", family);
  model::Config config = family == "gpt2" ? model::small_gpt2() : model::small_llama();
  config.layers = 4;
  config.heads = 8;
  config.kv_heads = family == "gpt2" ? 8 : 2;
  config.head_dim = 4;
  config.hidden = 32;
  config.ffn = 64;
  config.vocabulary = 257;
  config.embedding_dropout = config.attention_dropout = config.residual_dropout = 0.0;
  return config;
}

model::Config VerifyRun::narrow_config(const std::string& family) {
  model::Config config = VerifyRun::config(family == "relu" ? "gpt2" : family);
  config.layers = 2;
  config.heads = config.kv_heads = 6;
  config.hidden = 24;
  config.ffn = 96;
  if (family == "relu") config.activation = model::Activation::kRelu;
  return config;
}

void VerifyRun::put_weights(const std::string& directory, const std::string& seed) {
  constexpr int kSteps = 12;
  const train::ResolvedRun run = resolved({{"train.seed", seed}, {"train.steps", "100"}});
  const train::LayoutCurve curve = train::run_layout(env_, log_, run, {.steps = kSteps});
  std::vector<checkpoint::TensorSpec> specs;
  for (const model::Parameter& parameter : run.plan.table.parameters) {
    specs.push_back({.name = parameter.name, .dtype = DType::kF32, .shape = parameter.shape});
  }
  env_.make_directories(directory);
  checkpoint::SafetensorsWriter file(env_, join_path(directory, "model.safetensors"), specs);
  for (const auto& [name, tensor] : curve.steps.back().tensors) file.write_floats(name, tensor.weight);
  file.finish();
}

void VerifyRun::use_config(const model::Config& config) {
  env_.put_file("config.json", model::to_hugging_face(config).dump(2));
}

train::ResolvedRun VerifyRun::resolved(const Settings& more, std::int64_t layers) {
  Settings settings{{"model.config", "config.json"}, {"data.train", "data/train.bin"}, {"train.steps", "3"},
                    {"train.sequence", "16"},        {"train.global_batch", "8"},      {"train.micro_batch", "1"},
                    {"train.threads", "1"},          {"out.directory", "out"},         {"train.deadline", "60"}};
  settings.insert(settings.end(), more.begin(), more.end());
  return train::resolve_run(env_, train::make_run_config(Json::object(), settings).or_throw(), {.layers = layers});
}

train::VerifyReport VerifyRun::against(const plan::Layout& reference, const Settings& settings,
                                       const train::RankHooks& hooks, int steps) {
  return train::verify(env_, log_, resolved(settings), {.reference = reference, .steps = steps, .target_hooks = hooks});
}

double largest_ratio(const train::VerifyReport& report) {
  double largest = report.first ? report.first->ratio() : 0;
  for (const train::Finding& finding : report.findings) largest = std::max(largest, finding.ratio());
  return largest;
}

double worst_ratio(const train::VerifyReport& report) {
  double worst = 0;
  for (const train::Finding& finding : report.worst) {
    if (finding.bound > 0) worst = std::max(worst, finding.difference / finding.bound);
  }
  return worst;
}

}  // namespace trireme::testing
