#include "engine/data/token_file.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/file_changed.h"
#include "engine/data/token_format.h"

namespace trireme::data {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are read as they stand");

constexpr std::int64_t kLargest16BitVocabulary = 65536;

template <class Stored>
void widen(std::span<const std::byte> bytes, std::span<std::uint32_t> out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    Stored token;
    std::memcpy(&token, bytes.data() + i * sizeof(Stored), sizeof(Stored));
    out[i] = token;
  }
}

}  // namespace

std::int64_t token_size(std::int64_t vocabulary) { return vocabulary <= kLargest16BitVocabulary ? 2 : 4; }

void append_tokens(std::span<const std::int32_t> tokens, std::int64_t vocabulary, std::string& bytes) {
  const std::int64_t size = token_size(vocabulary);
  for (const std::int32_t token : tokens) {
    TRIREME_CHECK(token >= 0 && token < vocabulary, "token {} of a vocabulary of {}", token, vocabulary);
    for (std::int64_t i = 0; i < size; ++i) bytes += static_cast<char>(token >> (8 * i));
  }
}

Result<TokenFile> TokenFile::open(Env& env, const std::string& path, std::int64_t vocabulary,
                                  std::int64_t token_bytes) {
  TRIREME_CHECK_GT(vocabulary, 0);
  TRIREME_CHECK(token_bytes == 0 || token_bytes == 2 || token_bytes == 4, "tokens of {} bytes", token_bytes);
  if (token_bytes == 0) token_bytes = token_size(vocabulary);
  std::unique_ptr<RandomReader> file = env.open_reader(path);
  if (Status status = check_head(*file, path); !status.ok()) return status.failure();
  if (file->size() % token_bytes != 0) {
    return Failure{path, "",
                   fmt::format("truncated: {} bytes is not a multiple of {} (a token of a vocabulary of {})",
                               file->size(), token_bytes, vocabulary),
                   token_bytes == 4 && file->size() % 2 == 0
                       ? "make the file again; if its tokens are of 2 bytes: data.token_bytes = 2"
                       : "make the file again"};
  }
  return TokenFile(path, vocabulary, token_bytes, std::move(file));
}

TokenFile::TokenFile(std::string path, std::int64_t vocabulary, std::int64_t token_bytes,
                     std::unique_ptr<RandomReader> file)
    : path_(std::move(path)),
      vocabulary_(vocabulary),
      token_bytes_(token_bytes),
      tokens_(file->size() / token_bytes),
      file_(std::move(file)) {}

void TokenFile::read_bytes(std::int64_t begin, std::span<std::byte> out) const {
  const auto size = static_cast<std::int64_t>(out.size());
  TRIREME_CHECK_EQ(size % token_bytes_, 0);
  TRIREME_CHECK(begin >= 0 && begin <= tokens_ && size / token_bytes_ <= tokens_ - begin, "tokens {}+{} of {}", begin,
                size / token_bytes_, tokens_);
  if (out.empty()) return;
  try {
    file_->read_at(begin * token_bytes_, out);
  } catch (const FileChanged& changed) {
    throw Error(ExitCode::kUsage, "data", fmt::format("read {}", path_),
                "changed while it was trained on: " + changed.change(),
                "put back the tokens that the run has begun with: the same command goes on from its newest checkpoint");
  }
}

void TokenFile::read_raw(std::int64_t begin, std::span<std::uint32_t> out) const {
  std::vector<std::byte> bytes(out.size() * static_cast<std::size_t>(token_bytes_));
  read_bytes(begin, bytes);
  token_bytes_ == 2 ? widen<std::uint16_t>(bytes, out) : widen<std::uint32_t>(bytes, out);
}

void TokenFile::read(std::int64_t begin, std::span<std::int32_t> out) const {
  std::vector<std::uint32_t> tokens(out.size());
  read_raw(begin, tokens);
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (tokens[i] >= static_cast<std::uint64_t>(vocabulary_)) refuse_token(begin, tokens);
    out[i] = static_cast<std::int32_t>(tokens[i]);
  }
}

void TokenFile::refuse_token(std::int64_t begin, std::span<const std::uint32_t> tokens) const {
  const auto first = std::ranges::find_if(
      tokens, [&](std::uint32_t token) { return token >= static_cast<std::uint64_t>(vocabulary_); });
  throw Error(ExitCode::kUsage, "data", fmt::format("read {}", path_),
              fmt::format("token {} at position {} is not below the vocabulary ({}); largest id in tokens {} to {}: {}",
                          *first, begin + (first - tokens.begin()), vocabulary_, begin, begin + std::ssize(tokens) - 1,
                          std::ranges::max(tokens)),
              kBeyondVocabularyHint);
}

}  // namespace trireme::data
