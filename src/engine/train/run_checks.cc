#include "engine/train/run_checks.h"

#include <fmt/format.h>

#include "engine/data/tokenize.h"

namespace trireme::train {
namespace {

// The vocabulary whose ids a token file holds: what data.json beside it says, else the model's.
std::int64_t file_vocabulary(Env& env, const std::string& key, const std::string& path, const model::Config& config) {
  const std::string directory = directory_name(path);
  if (!env.exists(join_path(directory, data::kInfoFile))) return config.vocabulary;
  const data::DataInfo info = data::load_data_info(env, directory).or_throw();
  if (info.vocabulary > config.vocabulary) {
    throw Error(Failure{.option = key,
                        .value = path,
                        .rule = fmt::format("its tokenizer ({}) has {} tokens, the model's vocabulary {}",
                                            info.tokenizer, info.vocabulary, config.vocabulary),
                        .nearest = "a model with a vocabulary at least as large"});
  }
  return info.vocabulary;
}

// data.json says how many tokens the files beside it have.
void check_count(Env& env, const std::string& key, const std::string& path, const data::TokenFile& file) {
  const std::string directory = directory_name(path);
  if (!env.exists(join_path(directory, data::kInfoFile))) return;
  const data::DataInfo info = data::load_data_info(env, directory).or_throw();
  const std::string name = base_name(path);
  const std::int64_t expected = name == data::kTrainFile        ? info.train_tokens
                                : name == data::kValidationFile ? info.validation_tokens
                                                                : file.tokens();
  if (file.tokens() == expected) return;
  throw Error(Failure{.option = key,
                      .value = path,
                      .rule = fmt::format("holds {} tokens, and {} beside it says {}: truncated, or of another text",
                                          file.tokens(), data::kInfoFile, expected),
                      .nearest = "trireme data tokenize TEXT --out DIR makes it again"});
}

data::Sampler open_tokens(Env& env, const std::string& key, const std::string& path, const ResolvedRun& run,
                          data::Order order) {
  if (!env.exists(path)) {
    throw Error(Failure{.option = key,
                        .value = path,
                        .rule = "there is no such file",
                        .nearest = "trireme data tokenize TEXT --out DIR makes one"});
  }
  data::Sampler sampler =
      data::Sampler::open(env, {.path = path,
                                .vocabulary = file_vocabulary(env, key, path, run.plan.table.config),
                                .sequence = run.config.batch.sequence,
                                .seed = run.config.seed,
                                .order = order})
          .or_throw();
  check_count(env, key, path, sampler.file());
  return sampler;
}

}  // namespace

data::Sampler open_training(Env& env, const ResolvedRun& run) {
  return open_tokens(env, "data.train", run.config.train_tokens, run, data::Order::kShuffled);
}

data::Sampler open_validation(Env& env, const ResolvedRun& run) {
  const RunConfig& config = run.config;
  data::Sampler sampler = open_tokens(env, "data.validation", config.validation_tokens, run, data::Order::kInOrder);
  const std::int64_t available = sampler.samples_per_epoch() / config.batch.micro_batch;
  if (config.validation_micro_batches > available) {
    throw Error(Failure{.option = "train.validation_micro_batches",
                        .value = fmt::format("{}", config.validation_micro_batches),
                        .rule = fmt::format("{} holds {} micro-batches of {} x {} tokens", config.validation_tokens,
                                            available, config.batch.micro_batch, config.batch.sequence),
                        .nearest = available > 0 ? fmt::format("{}", available) : "a smaller train.micro_batch"});
  }
  return sampler;
}

namespace {

// Files that a run writes. They are replaced only where overwriting was asked for.
std::vector<std::string> run_files(Env& env, const std::string& out) {
  std::vector<std::string> files{join_path(out, "run.toml"), join_path(out, "metrics.jsonl")};
  const std::string model = join_path(out, "model");
  if (env.exists(model) && env.is_directory(model)) {
    for (const std::string& name : env.list_directory(model)) {
      const bool ours = name == "config.json" || name.find(".safetensors") != std::string::npos;
      if (ours) files.push_back(join_path(model, name));
    }
  }
  return files;
}

}  // namespace

void check_directory(Env& env, const RunConfig& config) {
  if (env.exists(config.out) && !env.is_directory(config.out)) {
    throw Error(Failure{.option = "out.directory", .value = config.out, .rule = "is a file", .nearest = ""});
  }
  if (!config.trace.empty() && env.is_directory(config.trace)) {
    throw Error(Failure{.option = "out.trace", .value = config.trace, .rule = "is a directory", .nearest = ""});
  }
  if (!config.trace.empty() && env.exists(config.trace) && !config.overwrite) {
    throw Error(Failure{.option = "out.trace",
                        .value = config.trace,
                        .rule = "is there already, and is not overwritten unless asked",
                        .nearest = "another --trace, or --overwrite"});
  }
  if (config.overwrite || !env.exists(config.out)) return;
  for (const std::string& file : run_files(env, config.out)) {
    if (!env.exists(file)) continue;
    throw Error(Failure{.option = "out.directory",
                        .value = config.out,
                        .rule = fmt::format("holds {} already, and is not overwritten unless asked", base_name(file)),
                        .nearest = "another --out, or --overwrite"});
  }
}

std::unique_ptr<FileLock> open_directory(Env& env, const RunConfig& config) {
  env.make_directories(join_path(config.out, "model"));
  std::unique_ptr<FileLock> lock = env.try_lock(join_path(config.out, ".lock"));
  if (lock == nullptr) {
    throw Error(Failure{.option = "out.directory",
                        .value = config.out,
                        .rule = "another run is writing there",
                        .nearest = "another --out"});
  }
  check_directory(env, config);  // what came in between
  if (!config.trace.empty()) env.make_directories(directory_name(config.trace));
  for (const std::string& file : run_files(env, config.out)) {
    if (env.exists(file)) env.remove_file(file);
  }
  RunConfig resolved = config;
  resolved.overwrite = false;  // a consent for this time
  resolved.trace.clear();      // a look at this time
  resolved.trace_first = resolved.trace_last = 0;
  env.write_file_atomically(join_path(config.out, "run.toml"), to_toml(resolved));
  return lock;
}

void check_memory(Env& env, const ResolvedRun& run, const std::vector<int>& ranks) {
  Bytes needed;
  for (int rank : ranks) {
    needed +=
        plan::predict_memory(run.plan.table, run.config.layout, run.config.batch, run.plan.inputs, rank).peak_sum();
  }
  const Bytes available = env.available_memory();
  if (needed <= available) return;
  throw Error(
      Failure{.option = "memory",
              .value = format_bytes(needed),
              .rule = fmt::format("the run needs that at its peak, and the host has {} left", format_bytes(available)),
              .nearest = "a smaller train.micro_batch, --layout.recompute full, or a smaller model",
              .code = ExitCode::kDoesNotFit});
}

}  // namespace trireme::train
