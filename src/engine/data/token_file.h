#pragma once

// Token files: raw little-endian unsigned integers without a header, as nanoGPT's `.bin` files are. 16 bits a
// token for vocabularies up to 65,536, else 32 bits: the width follows from the vocabulary, since the file
// does not say it.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/env.h"
#include "base/error.h"

namespace trireme::data {

// Bytes of one token in a file: 2 or 4.
std::int64_t token_size(std::int64_t vocabulary);

// Appends tokens as a file of that vocabulary holds them.
void append_tokens(std::span<const std::int32_t> tokens, std::int64_t vocabulary, std::string& bytes);

// A mapped token file. Immutable, so any number of threads may read it.
class TokenFile {
 public:
  // Refused: a size that is no multiple of the token's.
  static Result<TokenFile> open(Env& env, const std::string& path, std::int64_t vocabulary);

  const std::string& path() const { return path_; }
  std::int64_t vocabulary() const { return vocabulary_; }
  std::int64_t tokens() const { return tokens_; }

  // Copies tokens [begin, begin + out.size()). A token that is not below the vocabulary: Error, with its
  // position and the largest id of this read.
  void read(std::int64_t begin, std::span<std::int32_t> out) const;
  // One token as it stands in the file, unchecked.
  std::uint32_t raw(std::int64_t position) const;

 private:
  TokenFile(std::string path, std::int64_t vocabulary, std::unique_ptr<MappedFile> file);
  [[noreturn]] void refuse_token(std::int64_t begin, std::int64_t count) const;

  std::string path_;
  std::int64_t vocabulary_;
  std::int64_t token_size_;
  std::int64_t tokens_;
  std::unique_ptr<MappedFile> file_;
};

}  // namespace trireme::data
