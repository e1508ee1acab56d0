#include "engine/data/token_file.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"

namespace trireme::data {
namespace {

constexpr std::int64_t kLargest16BitVocabulary = 65536;

}  // namespace

std::int64_t token_size(std::int64_t vocabulary) { return vocabulary <= kLargest16BitVocabulary ? 2 : 4; }

void append_tokens(std::span<const std::int32_t> tokens, std::int64_t vocabulary, std::string& bytes) {
  const std::int64_t size = token_size(vocabulary);
  for (const std::int32_t token : tokens) {
    TRIREME_CHECK(token >= 0 && token < vocabulary, "token {} of a vocabulary of {}", token, vocabulary);
    for (std::int64_t i = 0; i < size; ++i) bytes += static_cast<char>(token >> (8 * i));
  }
}

Result<TokenFile> TokenFile::open(Env& env, const std::string& path, std::int64_t vocabulary) {
  TRIREME_CHECK_GT(vocabulary, 0);
  std::unique_ptr<MappedFile> file = env.map_file(path);
  const std::int64_t size = token_size(vocabulary);
  const auto bytes = static_cast<std::int64_t>(file->bytes().size());
  if (bytes % size != 0) {
    return Failure{path, "",
                   fmt::format("truncated: {} bytes is not a multiple of {} (a token of a vocabulary of {})", bytes,
                               size, vocabulary),
                   "make the file again"};
  }
  return TokenFile(path, vocabulary, std::move(file));
}

TokenFile::TokenFile(std::string path, std::int64_t vocabulary, std::unique_ptr<MappedFile> file)
    : path_(std::move(path)),
      vocabulary_(vocabulary),
      token_size_(token_size(vocabulary)),
      tokens_(static_cast<std::int64_t>(file->bytes().size()) / token_size_),
      file_(std::move(file)) {}

std::uint32_t TokenFile::raw(std::int64_t position) const {
  TRIREME_CHECK(position >= 0 && position < tokens_, "token {} of {}", position, tokens_);
  const std::byte* at = file_->bytes().data() + position * token_size_;
  std::uint32_t token = 0;
  for (std::int64_t i = 0; i < token_size_; ++i) token |= std::to_integer<std::uint32_t>(at[i]) << (8 * i);
  return token;
}

void TokenFile::read(std::int64_t begin, std::span<std::int32_t> out) const {
  const auto count = static_cast<std::int64_t>(out.size());
  TRIREME_CHECK(begin >= 0 && begin <= tokens_ && count <= tokens_ - begin, "tokens {}+{} of {}", begin, count,
                tokens_);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t token = raw(begin + i);
    if (token >= static_cast<std::uint64_t>(vocabulary_)) refuse_token(begin, count);
    out[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(token);
  }
}

void TokenFile::refuse_token(std::int64_t begin, std::int64_t count) const {
  std::int64_t first = -1;
  std::uint32_t largest = 0;
  for (std::int64_t i = begin; i < begin + count; ++i) {
    const std::uint32_t token = raw(i);
    if (first < 0 && token >= static_cast<std::uint64_t>(vocabulary_)) first = i;
    largest = std::max(largest, token);
  }
  throw Error(ExitCode::kUsage, "data", fmt::format("read {}", path_),
              fmt::format("token {} at position {} is not below the vocabulary ({}); largest id in tokens {} to {}: {}",
                          raw(first), first, vocabulary_, begin, begin + count - 1, largest),
              "the file was made with another tokenizer, or the model's vocabulary is too small");
}

}  // namespace trireme::data
