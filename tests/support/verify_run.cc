#include "support/verify_run.h"

#include "engine/data/tokenize.h"
#include "model/test_configs.h"

namespace trireme::testing {

VerifyRun::VerifyRun() {
  std::string text;
  for (int i = 0; i < 400; ++i)
    text += "the quick brown fox jumps over lazy dog number " + std::to_string(i * 7) + "\n";
  env_.put_file("text.txt", text);
  data::tokenize_text(env_, {.text_path = "text.txt", .out_directory = "data", .progress = {}}).or_throw();
  use_family("llama");
}

void VerifyRun::use_model(model::Config config, std::int64_t kv_heads) {
  config.layers = 4;
  config.heads = 8;
  config.kv_heads = kv_heads;
  config.head_dim = 4;
  config.hidden = 32;
  config.ffn = 64;
  config.vocabulary = 257;
  config.embedding_dropout = config.attention_dropout = config.residual_dropout = 0.0;
  env_.put_file("config.json", model::to_hugging_face(config).dump(2));
}

void VerifyRun::use_family(const std::string& family) {
  if (family == "gpt2") return use_model(model::small_gpt2(), 8);
  TRIREME_CHECK_EQ(family, "llama");
  use_model(model::small_llama(), 2);
}

train::VerifyReport VerifyRun::report(const Settings& more, const train::RankHooks& hooks, int steps) {
  Settings settings{{"model.config", "config.json"}, {"data.train", "data/train.bin"}, {"train.steps", "3"},
                    {"train.sequence", "16"},        {"train.global_batch", "8"},      {"train.micro_batch", "1"},
                    {"train.threads", "1"},          {"out.directory", "out"},         {"train.deadline", "20"}};
  settings.insert(settings.end(), more.begin(), more.end());
  const train::ResolvedRun run = train::resolve_run(env_, train::make_run_config(Json::object(), settings).or_throw());
  return train::verify(env_, log_, run, {.reference = {}, .steps = steps, .target_hooks = hooks});
}

double worst_ratio(const train::VerifyReport& report) {
  double worst = 0;
  for (const train::Finding& finding : report.worst) {
    if (finding.bound > 0) worst = std::max(worst, finding.difference / finding.bound);
  }
  return worst;
}

}  // namespace trireme::testing
