#pragma once

// What a token file is, beside the numbers in it: told by its first bytes, by a file beside it, or by one pass over all
// of it.

#include <array>
#include <cstdint>
#include <functional>
#include <string>

#include "base/env.h"
#include "base/error.h"
#include "base/units.h"

namespace trireme::data {

class TokenFile;

inline constexpr const char* kBeyondVocabularyHint =
    "the file was made with another tokenizer, its tokens are of another width (data.token_bytes), or the model's "
    "vocabulary is too small";

// Refused: a file that begins as one of another format does: llm.c's header, NumPy's, an archive, text, ...
Status check_head(const RandomReader& file, const std::string& path);

// What lies beside a token file and says what its tokens are: data.json, or the index of Megatron's data sets (x.idx
// beside x.bin).
struct ToldFormat {
  std::string by;                // its path; "": nothing does
  std::int64_t vocabulary = 0;   // 0: it does not say
  std::int64_t token_bytes = 0;  // 0: it does not say
  std::string tokenizer;         // "": it does not say
};
// Refused: a description that cannot be read, or is of tokens that are neither 2 nor 4 bytes of an integer.
Result<ToldFormat> format_beside(Env& env, const std::string& path);
// Bytes of a token: as asked (0: nobody has), else as told. Refused where the two differ; `option` names the asking.
Result<std::int64_t> agreed_token_bytes(std::int64_t asked, const ToldFormat& told, const std::string& option);

// All tokens of a file.
struct TokenScan {
  std::int64_t tokens = 0;
  std::uint32_t largest = 0;
  std::int64_t beyond = 0;              // not below the vocabulary
  std::int64_t first_beyond = -1;       // position of the first of them; -1: none
  std::uint32_t first_value = 0;        // what it is
  std::array<std::int64_t, 4> zeros{};  // tokens that are 0, by position modulo 4
};
using ScanProgress = std::function<void(Bytes done, Bytes total)>;  // may be empty
// Reads the file once, at the rate of memory or disk, through a MiB of memory.
TokenScan scan_tokens(const TokenFile& file, const ScanProgress& progress = {});
// Refused: tokens that look as those of another width do that are read as this one. `option`: the key or command that
// named the file.
Status check_width(const TokenFile& file, const TokenScan& scan, const std::string& option);
// Refused: that, unless the user has said how wide they are; tokens that are not below the vocabulary.
Status check_tokens(const TokenFile& file, const TokenScan& scan, const std::string& option, bool width_is_asked);

}  // namespace trireme::data
