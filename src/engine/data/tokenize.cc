#include "engine/data/tokenize.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <xxhash.h>

#include "base/check.h"
#include "engine/data/token_file.h"
#include "engine/data/token_format.h"

namespace trireme::data {
namespace {

// XXH3 of a text that comes in pieces.
class TextHash {
 public:
  TextHash() : state_(XXH3_createState(), &XXH3_freeState) { XXH3_64bits_reset(state_.get()); }
  void add(std::string_view piece) { XXH3_64bits_update(state_.get(), piece.data(), piece.size()); }
  std::string hex() const { return fmt::format("{:016x}", XXH3_64bits_digest(state_.get())); }

 private:
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state_;
};

// Encodes parts of the text, piece by piece. A tokenizer whose tokens span bytes will have to say where a
// piece may end.
class PieceEncoder {
 public:
  PieceEncoder(Env& env, const TokenizeOptions& options, const Tokenizer& tokenizer)
      : env_(env), options_(options), tokenizer_(tokenizer), text_(env.open_reader(options.text_path)) {}

  std::int64_t text_bytes() const { return text_->size(); }
  std::string hash() const { return hash_.hex(); }

  // Bytes [begin, end) of the text into one token file. Returns the tokens written.
  std::int64_t encode(std::int64_t begin, std::int64_t end, const std::string& path) {
    AtomicFile file(env_, path);
    std::int64_t tokens = 0;
    std::string piece;
    std::string bytes;
    for (std::int64_t at = begin; at < end; at += static_cast<std::int64_t>(piece.size())) {
      piece.resize(static_cast<std::size_t>(std::min(options_.piece_bytes, end - at)));
      text_->read_at(at, std::as_writable_bytes(std::span(piece.data(), piece.size())));
      hash_.add(piece);
      const std::vector<std::int32_t> ids = tokenizer_.encode(piece);
      bytes.clear();
      append_tokens(ids, tokenizer_.vocabulary_size(), bytes);
      file.writer().write_text(bytes);
      tokens += static_cast<std::int64_t>(ids.size());
      if (options_.progress) options_.progress(at + static_cast<std::int64_t>(piece.size()), text_bytes());
    }
    file.commit();
    return tokens;
  }

 private:
  Env& env_;
  const TokenizeOptions& options_;
  const Tokenizer& tokenizer_;
  std::unique_ptr<RandomReader> text_;
  TextHash hash_;
};

Result<std::int64_t> read_count(const Json& document, const std::string& path, std::string_view key) {
  const Json* value = document.find(key);
  if (value == nullptr || !value->is_integer() || value->as_integer() < 0) {
    return Failure{path, "", fmt::format("\"{}\" must be a count", key), "make the data again"};
  }
  return value->as_integer();
}

Result<std::string> read_text(const Json& document, const std::string& path, std::string_view key) {
  const Json* value = document.find(key);
  if (value == nullptr || !value->is_string()) {
    return Failure{path, "", fmt::format("\"{}\" must be a text", key), "make the data again"};
  }
  return value->as_string();
}

}  // namespace

Json to_json(const DataInfo& info) {
  return Json::object({{"tokenizer", info.tokenizer},
                       {"vocabulary", info.vocabulary},
                       {"token_bytes", info.token_bytes},
                       {"train_tokens", info.train_tokens},
                       {"validation_tokens", info.validation_tokens},
                       {"text_bytes", info.text_bytes},
                       {"text_xxh3", info.text_xxh3}});
}

Result<DataInfo> load_data_info(Env& env, const std::string& directory) {
  const std::string path = join_path(directory, kInfoFile);
  const Result<Json> document = parse_json(env.read_file(path), path);
  if (!document.ok()) return document.failure();
  DataInfo info;
  const std::pair<std::string_view, std::int64_t*> counts[] = {{"vocabulary", &info.vocabulary},
                                                               {"train_tokens", &info.train_tokens},
                                                               {"validation_tokens", &info.validation_tokens},
                                                               {"text_bytes", &info.text_bytes}};
  for (const auto& [key, count] : counts) {
    const Result<std::int64_t> read = read_count(*document, path, key);
    if (!read.ok()) return read.failure();
    *count = *read;
  }
  const std::pair<std::string_view, std::string*> texts[] = {{"tokenizer", &info.tokenizer},
                                                             {"text_xxh3", &info.text_xxh3}};
  for (const auto& [key, text] : texts) {
    const Result<std::string> read = read_text(*document, path, key);
    if (!read.ok()) return read.failure();
    *text = *read;
  }
  if (info.vocabulary < 1) return Failure{path, "", "\"vocabulary\" must be at least 1", "make the data again"};
  info.token_bytes = token_size(info.vocabulary);
  if (document->find("token_bytes") == nullptr) return info;
  const Result<std::int64_t> width = read_count(*document, path, "token_bytes");
  if (!width.ok()) return width.failure();
  info.token_bytes = *width;
  if (*width == 2 || *width == 4) return info;
  return Failure{path, "", fmt::format("\"token_bytes\" is {}, and token files have 2 or 4", *width),
                 "make the data again"};
}

Result<DataInfo> tokenize_text(Env& env, const TokenizeOptions& options) {
  TRIREME_CHECK_GT(options.piece_bytes, 0);
  const Result<std::unique_ptr<Tokenizer>> tokenizer = make_tokenizer(options.tokenizer);
  if (!tokenizer.ok()) return tokenizer.failure();
  const double fraction = options.validation_fraction;
  if (!(fraction >= 0.0 && fraction < 1.0)) {
    return Failure{"validation fraction", fmt::format("{}", fraction), "must be at least 0 and less than 1", "0.1, 0"};
  }
  PieceEncoder encoder(env, options, **tokenizer);
  const std::int64_t bytes = encoder.text_bytes();
  if (bytes == 0) return Failure{options.text_path, "", "the text is empty", "use a longer text"};

  const auto split = static_cast<std::int64_t>(static_cast<double>(bytes) * (1.0 - fraction));
  if (split == 0) {
    return Failure{"validation fraction", fmt::format("{}", fraction),
                   fmt::format("leaves nothing of a text of {} bytes for training", bytes), "0.1, 0"};
  }

  env.make_directories(options.out_directory);
  const auto path_of = [&](const char* name) { return join_path(options.out_directory, name); };
  // The info goes first and comes back last: data.json beside token files always describes them.
  if (env.exists(path_of(kInfoFile))) env.remove_file(path_of(kInfoFile));
  DataInfo info;
  info.tokenizer = options.tokenizer;
  info.vocabulary = (*tokenizer)->vocabulary_size();
  info.token_bytes = token_size(info.vocabulary);
  info.text_bytes = bytes;
  info.train_tokens = encoder.encode(0, split, path_of(kTrainFile));
  if (split < bytes) {
    info.validation_tokens = encoder.encode(split, bytes, path_of(kValidationFile));
  } else if (env.exists(path_of(kValidationFile))) {
    env.remove_file(path_of(kValidationFile));  // of an earlier run
  }
  info.text_xxh3 = encoder.hash();
  env.write_file_atomically(path_of(kInfoFile), to_json(info).dump(2) + "\n");
  return info;
}

Result<TokenFileSummary> inspect_token_file(Env& env, const std::string& path, const InspectOptions& options) {
  const Result<TokenFile> file = TokenFile::open(env, path, options.vocabulary, options.token_bytes);
  if (!file.ok()) return file.failure();
  if (!options.width_is_asked) {
    if (Status status = check_width(*file, scan_tokens(*file), "data"); !status.ok()) return status.failure();
  }
  TokenFileSummary summary;
  summary.tokens = file->tokens();
  summary.token_bytes = file->token_bytes();
  std::vector<std::int64_t> known(static_cast<std::size_t>(options.vocabulary));
  std::map<std::uint32_t, std::int64_t> unknown;  // ids beyond the vocabulary may be anything, so no table
  constexpr std::int64_t kPiece = std::int64_t{1} << 18;
  std::vector<std::uint32_t> piece;
  for (std::int64_t begin = 0; begin < summary.tokens; begin += std::ssize(piece)) {
    piece.resize(static_cast<std::size_t>(std::min(kPiece, summary.tokens - begin)));
    file->read_raw(begin, piece);
    for (std::size_t i = 0; i < piece.size(); ++i) {
      const std::uint32_t id = piece[i];
      if (id >= known.size()) {
        ++unknown[id];
        ++summary.ids_beyond_vocabulary;
        continue;
      }
      ++known[id];
      const bool first = begin + static_cast<std::int64_t>(i) < options.first_tokens;
      if (first) summary.first_tokens.push_back(static_cast<std::int32_t>(id));
    }
  }
  const auto count_id = [&](std::size_t id, std::int64_t count) {
    if (count == 0) return;
    const double share = static_cast<double>(count) / static_cast<double>(summary.tokens);
    summary.unigram_entropy -= share * std::log(share);
    summary.largest_id = static_cast<std::int64_t>(id);
    ++summary.distinct_ids;
  };
  for (std::size_t id = 0; id < known.size(); ++id) count_id(id, known[id]);
  for (const auto& [id, count] : unknown) count_id(id, count);
  if (options.tokenizer != nullptr && options.vocabulary <= options.tokenizer->vocabulary_size()) {
    summary.first_text = options.tokenizer->decode(summary.first_tokens);
  }
  return summary;
}

}  // namespace trireme::data
