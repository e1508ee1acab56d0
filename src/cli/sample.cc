#include <cmath>

#include <fmt/format.h>

#include "base/standard_streams.h"
#include "cli/commands.h"
#include "engine/data/tokenizer.h"
#include "engine/train/generate.h"
#include "model/config.h"

namespace trireme::cli {
namespace {

void check(const train::GenerateOptions& job, const model::Config& config) {
  constexpr std::int64_t kMostTokens = 1'000'000;
  if (job.tokens < 0 || job.tokens > kMostTokens) {
    throw Error(Failure{.option = "--tokens",
                        .value = fmt::format("{}", job.tokens),
                        .rule = fmt::format("must be in [0, {}]", kMostTokens),
                        .nearest = "200"});
  }
  if (job.context < 1 || job.context > config.max_positions) {
    throw Error(Failure{.option = "--context",
                        .value = fmt::format("{}", job.context),
                        .rule = fmt::format("the model has positions for 1 to {} tokens", config.max_positions),
                        .nearest = fmt::format("{}", config.max_positions)});
  }
  if (!(job.temperature >= 0.0) || !std::isfinite(job.temperature)) {
    throw Error(Failure{.option = "--temperature",
                        .value = fmt::format("{}", job.temperature),
                        .rule = "must be a number of at least 0",
                        .nearest = "0.8"});
  }
}

// The model's own, as Hugging Face's folders have it; "": the folder has none.
std::string tokenizer_file(Env& env, const std::string& folder) {
  for (const char* name : {"tokenizer.json", "tokenizer.model", "spiece.model", "vocab.json", "vocab.txt"}) {
    const std::string path = join_path(folder, name);
    if (env.exists(path)) return path;
  }
  return "";
}

// Bytes are taken for a model's tokens where nothing speaks against it, or where the user says that they are.
std::unique_ptr<data::Tokenizer> chosen_tokenizer(Env& env, Log& log, const std::string& asked,
                                                  const std::string& folder, const model::Config& config) {
  constexpr const char* kBytes = "byte";
  const std::string name = asked.empty() ? kBytes : asked;
  std::unique_ptr<data::Tokenizer> tokenizer = data::make_tokenizer(name).or_throw();
  const std::string file = tokenizer_file(env, folder);
  std::string doubt;
  if (!file.empty()) doubt = fmt::format("is not the model's: that is {}, which this program does not read", file);
  if (tokenizer->vocabulary_size() != config.vocabulary) {
    doubt = fmt::format("has {} tokens, the model's vocabulary {}{}", tokenizer->vocabulary_size(), config.vocabulary,
                        file.empty() ? "" : fmt::format(" ({})", file));
  }
  const bool too_small = tokenizer->vocabulary_size() > config.vocabulary;
  if (!doubt.empty() && (asked.empty() || too_small)) {
    throw Error(
        Failure{.option = "--tokenizer",
                .value = name,
                .rule = doubt,
                .nearest = too_small ? "a model that was trained on bytes"
                                     : fmt::format("only if the model was trained on bytes: --tokenizer {}", kBytes)});
  }
  if (!doubt.empty()) log.warning("--tokenizer = {}: {}; tokens that it does not have are written as ?", name, doubt);
  return tokenizer;
}

}  // namespace

void declare_sample(Command& root, Env& env) {
  struct Options {
    std::string model;
    std::string prompt = "The ";
    std::string tokenizer;
    train::GenerateOptions generate;
    std::int64_t seed = 1;
  };
  auto options = std::make_shared<Options>();
  Command& command = root.command("sample", "Write text with a trained model (a look at it, not a server)");
  command.positional("model", options->model, "directory with config.json and safetensors", true);
  command.option("prompt", options->prompt, "text to go on from");
  command.option("tokenizer", options->tokenizer,
                 "of the run's data: byte (the default where the model's vocabulary is as large)");
  command.option("tokens", options->generate.tokens, "how many to write");
  command.option("context", options->generate.context, "tokens that the model sees");
  command.option("temperature", options->generate.temperature, "0: always the likeliest token");
  command.option("seed", options->seed, "the same seed writes the same text");
  command.examples("  trireme sample runs/one/model --prompt 'In the beginning' --tokens 300");
  command.run([options, &env] {
    const std::unique_ptr<Log> log = make_stderr_log();
    const model::Config config = model::load_config(env, options->model).or_throw();
    const std::unique_ptr<data::Tokenizer> tokenizer =
        chosen_tokenizer(env, *log, options->tokenizer, options->model, config);
    check(options->generate, config);
    train::GenerateOptions job = options->generate;
    job.model_directory = options->model;
    job.prompt = tokenizer->encode(options->prompt);
    job.seed = static_cast<std::uint64_t>(options->seed);
    job.threads = env.core_count();
    bool begun = false;  // nothing is printed before the model is there
    train::generate(env, *log, job, [&](std::int32_t token) {
      if (!begun) fmt::print("{}", options->prompt);
      begun = true;
      // A model with more rows than the tokenizer has tokens may name one that stands for nothing.
      const bool known = token < tokenizer->vocabulary_size();
      fmt::print("{}", known ? tokenizer->decode(std::span(&token, 1)) : std::string("?"));
      std::fflush(stdout);
      return !output_has_no_reader();
    });
    fmt::print("\n");
    return ExitCode::kDone;
  });
}

}  // namespace trireme::cli
