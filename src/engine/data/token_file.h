#pragma once

// Token files: raw little-endian unsigned integers without a header, as nanoGPT's `.bin` files are. 16 bits a
// token for vocabularies up to 65,536, else 32 bits, unless their width is told: the file itself does not say it.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/env.h"
#include "base/error.h"

namespace trireme::data {

// Bytes of one token in a file, where nobody says otherwise: 2 or 4.
std::int64_t token_size(std::int64_t vocabulary);

// Appends tokens as a file of that vocabulary holds them.
void append_tokens(std::span<const std::int32_t> tokens, std::int64_t vocabulary, std::string& bytes);

// A token file that is being read. Immutable, so any number of threads may read it.
class TokenFile {
 public:
  // token_bytes: 2 or 4, or 0: token_size(vocabulary). Refused: a file that begins as one of another
  // format does; a size that is no multiple of the token's.
  static Result<TokenFile> open(Env& env, const std::string& path, std::int64_t vocabulary,
                                std::int64_t token_bytes = 0);

  const std::string& path() const { return path_; }
  std::int64_t vocabulary() const { return vocabulary_; }
  std::int64_t tokens() const { return tokens_; }
  std::int64_t token_bytes() const { return token_bytes_; }

  // Copies tokens [begin, begin + out.size()). A token that is not below the vocabulary: Error, with its
  // position and the largest id of this read.
  void read(std::int64_t begin, std::span<std::int32_t> out) const;
  // The same as they stand in the file, unchecked.
  void read_raw(std::int64_t begin, std::span<std::uint32_t> out) const;
  // The same as bytes: out.size() is a multiple of token_bytes(). A file that is written to meanwhile: Error(kUsage),
  // since another start would read what is there now.
  void read_bytes(std::int64_t begin, std::span<std::byte> out) const;

 private:
  TokenFile(std::string path, std::int64_t vocabulary, std::int64_t token_bytes, std::unique_ptr<RandomReader> file);
  [[noreturn]] void refuse_token(std::int64_t begin, std::span<const std::uint32_t> tokens) const;

  std::string path_;
  std::int64_t vocabulary_;
  std::int64_t token_bytes_;
  std::int64_t tokens_;
  std::unique_ptr<RandomReader> file_;
};

}  // namespace trireme::data
