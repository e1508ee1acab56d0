#include "engine/train/run_checks.h"

#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/memory_limits.h"
#include "checkpoint/model_weights.h"
#include "engine/data/token_format.h"
#include "engine/data/tokenize.h"
#include "engine/train/run_saver.h"
#include "model/config_difference.h"

namespace trireme::train {
namespace {

constexpr const char* kTrainKey = "data.train";
constexpr const char* kValidationKey = "data.validation";

// A refusal of what a key names, with the key; where it is of another file, that one stays named.
Failure of_key(Failure failure, const std::string& key, const std::string& path) {
  if (failure.option != path) failure.rule = fmt::format("{}: {}", failure.option, failure.rule);
  failure.option = key;
  failure.value = path;
  return failure;
}

// What a file beside it says of a token file, which must fit the model.
data::ToldFormat told_format(Env& env, const std::string& key, const std::string& path, const model::Config& config) {
  data::ToldFormat told = data::format_beside(env, path).or_throw();
  if (told.vocabulary > config.vocabulary) {
    throw Error(Failure{.option = key,
                        .value = path,
                        .rule = fmt::format("its tokenizer ({}) has {} tokens, the model's vocabulary {}",
                                            told.tokenizer, told.vocabulary, config.vocabulary),
                        .nearest = "a model with a vocabulary at least as large"});
  }
  if (told.vocabulary == 0) told.vocabulary = config.vocabulary;
  return told;
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
  if (env.is_directory(path)) {
    throw Error(Failure{.option = key,
                        .value = path,
                        .rule = "is a directory, not a token file",
                        .nearest = join_path(path, key == kTrainKey ? data::kTrainFile : data::kValidationFile)});
  }
  const data::ToldFormat told = told_format(env, key, path, run.plan.table.config);
  Result<data::Sampler> opened = data::Sampler::open(
      env, {.path = path,
            .vocabulary = told.vocabulary,
            .sequence = run.config.batch.sequence,
            .seed = run.config.seed,
            .order = order,
            .token_bytes = data::agreed_token_bytes(run.config.token_bytes, told, "data.token_bytes").or_throw()});
  if (!opened.ok()) throw Error(of_key(opened.failure(), key, path));
  data::Sampler sampler = std::move(opened).value();
  check_count(env, key, path, sampler.file());
  return sampler;
}

// Reads all of a file that takes long with a word every few seconds.
void check_all_tokens(Env& env, Log& log, const std::string& key, const data::TokenFile& file, bool width_is_asked) {
  constexpr double kWordEvery_s = 5.0;
  Seconds last_word = env.now();
  const data::TokenScan scan = data::scan_tokens(file, [&](Bytes done, Bytes total) {
    if (env.now().count - last_word.count < kWordEvery_s) return;
    last_word = env.now();
    log.info("{} = {}: {} of {} checked", key, file.path(), format_bytes(done), format_bytes(total));
  });
  if (Status status = data::check_tokens(file, scan, key, width_is_asked); !status) throw Error(status.failure());
}

// The config.json that lies beside weights is of the same function as the run's model.
void check_config_of_weights(Env& env, const std::string& path, const model::Config& config) {
  const std::string own = join_path(env.is_directory(path) ? path : directory_name(path), "config.json");
  if (!env.exists(own)) return;
  const Result<model::Config> theirs = model::load_config(env, own);
  if (!theirs.ok()) {
    throw Error(
        Failure{.option = "model.weights",
                .value = path,
                .rule = "their config.json cannot be compared with model.config: " + theirs.failure().sentence(),
                .nearest = "if model.config is right, weights in a folder without a config.json"});
  }
  std::vector<std::string> words;
  for (const model::ConfigDifference& difference : model::differences_of(*theirs, config)) {
    words.push_back(fmt::format("{} is {} in {}, and {} in model.config", difference.field, difference.first, own,
                                difference.second));
  }
  if (words.empty()) return;
  throw Error(Failure{.option = "model.weights",
                      .value = path,
                      .rule = fmt::format("are of another model: {}", fmt::join(words, "; ")),
                      .nearest = fmt::format("--model.config {}", own)});
}

// Of these ranks together, at their peaks.
Bytes needed_by(const ResolvedRun& run, const std::vector<int>& ranks) {
  Bytes needed;
  for (int rank : ranks) {
    needed +=
        plan::predict_memory(run.plan.table, run.config.layout, run.config.batch, run.plan.inputs, rank).peak_sum();
  }
  return needed;
}

}  // namespace

data::Sampler open_training(Env& env, const ResolvedRun& run) {
  return open_tokens(env, kTrainKey, run.config.train_tokens, run, data::Order::kShuffled);
}

data::Sampler open_validation(Env& env, const ResolvedRun& run) {
  const RunConfig& config = run.config;
  data::Sampler sampler = open_tokens(env, kValidationKey, config.validation_tokens, run, data::Order::kInOrder);
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

void check_tokens(Env& env, Log& log, const ResolvedRun& run) {
  const bool width_is_asked = run.config.token_bytes != 0;
  check_all_tokens(env, log, kTrainKey, open_training(env, run).file(), width_is_asked);
  if (run.config.validation_tokens.empty()) return;
  check_all_tokens(env, log, kValidationKey, open_validation(env, run).file(), width_is_asked);
}

void check_run(Env& env, const ResolvedRun& run) {
  open_training(env, run);
  if (!run.config.validation_tokens.empty()) open_validation(env, run);
}

void check_weights(Env& env, const ResolvedRun& run) {
  const std::string& path = run.config.model_weights;
  if (path.empty()) return;
  model::Config stored = run.plan.table.config;
  stored.layers = std::max(stored.layers, run.stored_layers);
  if (env.exists(path)) check_config_of_weights(env, path, stored);
  const Result<checkpoint::ModelWeights> weights =
      checkpoint::ModelWeights::open(env, path, run.plan.table, stored.layers);
  if (!weights.ok()) throw Error(of_key(weights.failure(), "model.weights", path));
}

void check_room(Env& env, const ResolvedRun& run) {
  if (run.config.save_interval.kind == SaveInterval::Kind::kNone) return;
  std::string place = run.config.out;
  while (!env.exists(place)) place = directory_name(place);
  const Bytes needed = save_bytes(run.plan.table, run.config.layout), left = env.free_space(place);
  if (needed <= left) return;
  throw Error(Failure{
      .option = "out.directory",
      .value = run.config.out,
      .rule = fmt::format("a checkpoint needs {}, and its disk has {} left", format_bytes(needed), format_bytes(left)),
      .nearest = "a directory on another disk, or checkpoint.interval none",
      .code = ExitCode::kStorage});
}

std::vector<int> all_ranks(const plan::Layout& layout) {
  std::vector<int> all(static_cast<std::size_t>(layout.world()));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

void check_address_space(Env& env, const ResolvedRun& run, const std::vector<int>& ranks) {
  const Bytes left = left_by_process_limits(env);
  constexpr int kOwn = 3;  // that commit, report and measure
  constexpr Bytes kHeap{std::int64_t{24} << 20};
  const std::int64_t threads = std::ssize(ranks) * (run.plan.inputs.threads + 1) - 1 + kOwn;  // one a rank that saves
  const Bytes needed = needed_by(run, ranks) + kHeap + Bytes{threads * thread_stack().count};
  if (needed <= left) return;
  throw Error(Failure{.option = "limit on address space or data (ulimit -v, -d)",
                      .value = fmt::format("{} left", format_bytes(left)),
                      .rule = fmt::format("the ranks of this process need {}, with {} threads of {} each",
                                          format_bytes(needed), threads, format_bytes(thread_stack())),
                      .nearest = "raise the limit, or lower that on stacks (ulimit -s)",
                      .code = ExitCode::kDoesNotFit});
}

void check_memory(Env& env, const ResolvedRun& run, const std::vector<int>& ranks) {
  const Bytes needed = needed_by(run, ranks);
  const Bytes available = env.available_memory();
  if (needed <= available) return;
  throw Error(
      Failure{.option = "memory",
              .value = format_bytes(needed),
              .rule = fmt::format("the run needs that at its peak, and the host has {} left", format_bytes(available)),
              .nearest = "a smaller train.micro_batch, --layout.recompute full, --checkpoint.async false, or a smaller "
                         "model",
              .code = ExitCode::kDoesNotFit});
}

}  // namespace trireme::train
