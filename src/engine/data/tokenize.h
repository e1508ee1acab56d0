#pragma once

// A text file to token files for training and validation, and what is in a token file.
// Written into a directory: train.bin, validation.bin (absent if it would be empty), and, last, data.json:
//   {"tokenizer": "byte", "vocabulary": 256, "token_bytes": 2, "train_tokens": n, "validation_tokens": n,
//    "text_bytes": n, "text_xxh3": "16 hex digits"}

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/env.h"
#include "base/error.h"
#include "base/json.h"
#include "engine/data/tokenizer.h"

namespace trireme::data {

inline constexpr const char* kTrainFile = "train.bin";
inline constexpr const char* kValidationFile = "validation.bin";
inline constexpr const char* kInfoFile = "data.json";

// What data.json says.
struct DataInfo {
  std::string tokenizer;
  std::int64_t vocabulary = 0;
  std::int64_t token_bytes = 0;  // 2 or 4
  std::int64_t train_tokens = 0;
  std::int64_t validation_tokens = 0;
  std::int64_t text_bytes = 0;
  std::string text_xxh3;  // XXH3, 64 bits, of the text
  friend bool operator==(const DataInfo&, const DataInfo&) = default;
};
Json to_json(const DataInfo& info);
// Of directory/data.json. Refused: a file that is not as above. Without token_bytes the width follows from the
// vocabulary.
Result<DataInfo> load_data_info(Env& env, const std::string& directory);

struct TokenizeOptions {
  std::string text_path;
  std::string out_directory;  // made if absent
  std::string tokenizer = "byte";
  double validation_fraction = 0.1;                  // of the text's bytes, taken from its end
  std::int64_t piece_bytes = std::int64_t{1} << 22;  // memory does not depend on the text's size
  std::function<void(std::int64_t bytes_done, std::int64_t bytes_total)> progress;  // after each piece; may be empty
};
// Refused: an unknown tokenizer, a fraction outside [0, 1), an empty text. Files appear whole or not at all.
Result<DataInfo> tokenize_text(Env& env, const TokenizeOptions& options);

struct TokenFileSummary {
  std::int64_t tokens = 0;
  std::int64_t token_bytes = 0;
  std::int64_t distinct_ids = 0;
  std::int64_t largest_id = -1;            // -1: no tokens
  std::int64_t ids_beyond_vocabulary = 0;  // tokens, not distinct ids
  double unigram_entropy = 0.0;            // nats a token: the loss of a model that knows frequencies and no more
  std::vector<std::int32_t> first_tokens;  // below the vocabulary only
  std::string first_text;                  // decoded; "" without a tokenizer
};
struct InspectOptions {
  std::int64_t vocabulary = 0;
  std::int64_t token_bytes = 0;          // 0: as TokenFile::open has it
  bool width_is_asked = false;           // the user has said so
  const Tokenizer* tokenizer = nullptr;  // may be null
  std::int64_t first_tokens = 64;
};
// Refused as TokenFile::open and check_width say. Reads the whole file once more than that.
Result<TokenFileSummary> inspect_token_file(Env& env, const std::string& path, const InspectOptions& options);

}  // namespace trireme::data
