#include <fmt/format.h>

#include "base/screen.h"
#include "base/units.h"
#include "cli/commands.h"
#include "engine/data/token_format.h"
#include "engine/data/tokenize.h"

namespace trireme::cli {
namespace {

void declare_tokenize(Command& parent, Env& env) {
  struct Options {
    std::string text;
    std::string out = "data";
    std::string tokenizer = "byte";
    double validation_fraction = 0.1;
    bool json = false;
  };
  auto options = std::make_shared<Options>();
  Command& command = parent.command("tokenize", "Turn a text into token files for training and validation");
  command.positional("text", options->text, "a text file", true);
  command.option("out", options->out, "directory for train.bin, validation.bin and data.json");
  command.option("tokenizer", options->tokenizer, "byte: one token a byte");
  command.option("validation-fraction", options->validation_fraction, "part of the text, from its end");
  command.flag("json", options->json, "one JSON object on standard output");
  command.examples("  trireme data tokenize book.txt --out data/book");
  command.keeps_results([] { return true; });
  command.run([options, &env] {
    Screen screen(write_to_stderr, stderr_columns);
    const data::TokenizeOptions job{.text_path = options->text,
                                    .out_directory = options->out,
                                    .tokenizer = options->tokenizer,
                                    .validation_fraction = options->validation_fraction,
                                    .progress = [&](std::int64_t done, std::int64_t total) {
                                      screen.status({format_bytes(Bytes{done}) + " of " + format_bytes(Bytes{total})});
                                    }};
    Result<data::DataInfo> made = data::tokenize_text(env, job);
    screen.clear_status();
    const data::DataInfo info = std::move(made).or_throw();
    if (options->json) {
      fmt::print("{}\n", data::to_json(info).dump(2));
    } else {
      fmt::print("{}: {} training and {} validation tokens, vocabulary {} ({})\n", options->out,
                 format_exact(info.train_tokens), format_exact(info.validation_tokens), info.vocabulary,
                 info.tokenizer);
    }
    return ExitCode::kDone;
  });
}

// A directory is what tokenize wrote; a single file needs its vocabulary.
struct Inspected {
  std::string file;
  std::int64_t vocabulary = 0;
  std::int64_t token_bytes = 0;  // 0: nobody says it
  std::string tokenizer;
};

std::vector<Inspected> files_at(Env& env, const std::string& path, std::int64_t vocabulary, std::int64_t token_bytes) {
  constexpr std::int64_t kMostTokens = std::int64_t{1} << 31;
  if (vocabulary < 0 || vocabulary > kMostTokens) {
    throw Error(Failure{.option = "--vocabulary",
                        .value = fmt::format("{}", vocabulary),
                        .rule = fmt::format("must be in [1, {}]", kMostTokens),
                        .nearest = "50257"});
  }
  if (token_bytes != 0 && token_bytes != 2 && token_bytes != 4) {
    throw Error(Failure{.option = "--token-bytes",
                        .value = fmt::format("{}", token_bytes),
                        .rule = "tokens are 16 or 32 bits",
                        .nearest = "2, 4"});
  }
  std::vector<std::string> paths{path};
  if (env.is_directory(path)) {
    paths = {join_path(path, data::kTrainFile), join_path(path, data::kValidationFile)};
    std::erase_if(paths, [&](const std::string& file) { return !env.exists(file); });
  }
  const data::ToldFormat told =
      data::format_beside(env, env.is_directory(path) ? join_path(path, data::kTrainFile) : path).or_throw();
  if (vocabulary == 0) vocabulary = told.vocabulary;
  if (vocabulary == 0) {
    throw Error(Failure{.option = "--vocabulary",
                        .value = "",
                        .rule = fmt::format("is needed: there is no {} beside {}", data::kInfoFile, path),
                        .nearest = "50257 for gpt2's tokens"});
  }
  const std::int64_t width = data::agreed_token_bytes(token_bytes, told, "--token-bytes").or_throw();
  std::vector<Inspected> files;
  for (const std::string& file : paths) files.push_back({file, vocabulary, width, told.tokenizer});
  return files;
}

Json to_json(const Inspected& file, const data::TokenFileSummary& summary) {
  return Json::object({{"file", file.file},
                       {"tokens", summary.tokens},
                       {"token_bytes", summary.token_bytes},
                       {"vocabulary", file.vocabulary},
                       {"distinct_ids", summary.distinct_ids},
                       {"largest_id", summary.largest_id},
                       {"ids_beyond_vocabulary", summary.ids_beyond_vocabulary},
                       {"unigram_entropy_nats", summary.unigram_entropy}});
}

void declare_inspect(Command& parent, Env& env) {
  struct Options {
    std::string path;
    std::int64_t vocabulary = 0;
    std::int64_t token_bytes = 0;
    bool json = false;
  };
  auto options = std::make_shared<Options>();
  Command& command = parent.command("inspect", "Counts, entropy and first tokens of token files");
  command.positional("path", options->path, "a token file, or a directory that tokenize wrote", true);
  command.option("vocabulary", options->vocabulary, "of the file, where no data.json says it");
  command.option("token-bytes", options->token_bytes,
                 "of a token: 2 or 4 (default: as a file beside it says, else as "
                 "the vocabulary needs)");
  command.flag("json", options->json, "one JSON object on standard output");
  command.examples("  trireme data inspect data/book\n  trireme data inspect train.bin --vocabulary 50257");
  command.run([options, &env] {
    Json all = Json::array();
    for (const Inspected& file : files_at(env, options->path, options->vocabulary, options->token_bytes)) {
      std::unique_ptr<data::Tokenizer> tokenizer;
      if (!file.tokenizer.empty()) tokenizer = data::make_tokenizer(file.tokenizer).or_throw();
      const data::TokenFileSummary summary = data::inspect_token_file(env, file.file,
                                                                      {.vocabulary = file.vocabulary,
                                                                       .token_bytes = file.token_bytes,
                                                                       .width_is_asked = options->token_bytes != 0,
                                                                       .tokenizer = tokenizer.get()})
                                                 .or_throw();
      all.push_back(to_json(file, summary));
      if (options->json) continue;
      fmt::print("{}: {} tokens of {} bytes, {} distinct, largest {} of vocabulary {}\n", file.file,
                 format_exact(summary.tokens), summary.token_bytes, summary.distinct_ids, summary.largest_id,
                 file.vocabulary);
      if (summary.ids_beyond_vocabulary > 0) {
        fmt::print("  {} tokens are not below the vocabulary\n", format_exact(summary.ids_beyond_vocabulary));
      }
      fmt::print("  unigram entropy {:.4f} nats a token (a model that knows frequencies alone reaches this loss)\n",
                 summary.unigram_entropy);
      if (!summary.first_text.empty()) fmt::print("  begins: {}\n", Json(summary.first_text).dump());
    }
    if (options->json) fmt::print("{}\n", Json::object({{"files", all}}).dump(2));
    return ExitCode::kDone;
  });
}

}  // namespace

void declare_data(Command& root, Env& env) {
  Command& command = root.command("data", "Token files: make them, look into them");
  command.examples("  trireme data tokenize book.txt --out data/book\n  trireme data inspect data/book");
  declare_tokenize(command, env);
  declare_inspect(command, env);
}

}  // namespace trireme::cli
