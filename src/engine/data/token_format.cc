#include "engine/data/token_format.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "base/file_format.h"
#include "engine/data/token_file.h"
#include "engine/data/tokenize.h"

namespace trireme::data {
namespace {

using namespace std::string_view_literals;

// llm.c's token files: 256 int32 of header, of which the first is one of these, then tokens of so many bytes.
struct LlmcMagic {
  std::uint32_t number;
  int token_bytes;
};
constexpr LlmcMagic kLlmcMagics[] = {{20240520, 2}, {20240801, 4}};
constexpr std::int64_t kLlmcHeader = 1024;

constexpr std::string_view kMegatronMagic = "MMIDIDX\0\0"sv;

std::vector<std::byte> head_of(const RandomReader& file, std::int64_t bytes) {
  std::vector<std::byte> head(static_cast<std::size_t>(std::min(bytes, file.size())));
  if (!head.empty()) file.read_at(0, head);
  return head;
}

template <class Number>
Number number_at(std::span<const std::byte> bytes, std::size_t offset) {
  Number number;
  std::memcpy(&number, bytes.data() + offset, sizeof number);
  return number;
}

// The header's other numbers are version and count, then zeros.
const LlmcMagic* llmc_header(std::span<const std::byte> head) {
  if (std::ssize(head) < kLlmcHeader) return nullptr;
  constexpr std::size_t kZerosFrom = 12;
  for (std::size_t i = kZerosFrom; i < static_cast<std::size_t>(kLlmcHeader); ++i) {
    if (head[i] != std::byte{}) return nullptr;
  }
  const auto first = number_at<std::uint32_t>(head, 0);
  const auto* found = std::ranges::find(kLlmcMagics, first, &LlmcMagic::number);
  return found == std::end(kLlmcMagics) ? nullptr : found;
}

std::string remedy_of(const FileFormat& format, const std::string& path) {
  if (!format.remedy.empty()) return std::string(format.remedy);
  if (format.text) return "trireme data tokenize TEXT --out DIR makes token files of a text";
  if (format.name.find("NumPy") != std::string_view::npos) {
    return fmt::format("Python: numpy.load('{}').astype('<u2').tofile('tokens.bin'), or '<u4' for tokens of 4 bytes",
                       path);
  }
  if (format.name.find("Megatron") != std::string_view::npos) return "the tokens are in the .bin file beside it";
  return "a file of tokens alone: 16 or 32 bits each, little-endian, without a header";
}

// The index beside a .bin file: 9 bytes of magic, a version of 8, and a byte that says what its tokens are.
Result<ToldFormat> megatron_format(Env& env, const std::string& index) {
  constexpr std::size_t kTypeAt = 17;
  constexpr int kWidths[] = {0, 1, 1, 2, 4, 8, 0, 0, 2};  // by type; 0: none, or no integer
  const std::vector<std::byte> head = head_of(*env.open_reader(index), kTypeAt + 1);
  ToldFormat told;
  if (head.size() <= kTypeAt || std::memcmp(head.data(), kMegatronMagic.data(), kMegatronMagic.size()) != 0) {
    return told;
  }
  const auto type = std::to_integer<std::size_t>(head[kTypeAt]);
  const int width = type < std::size(kWidths) ? kWidths[type] : 0;
  if (width != 2 && width != 4) {
    return Failure{index, "", fmt::format("the tokens beside it are of Megatron's type {}, which is not read", type),
                   "tokens of 16 or 32 bits"};
  }
  told.by = index;
  told.token_bytes = width;
  return told;
}

// Largest token and zeros by position modulo 4, of a piece that begins at a multiple of 4. Counters of a lane are as
// wide as its tokens, so that the compiler needs no conversions; kRounds keeps them from overflowing.
template <class Token>
void scan_piece(std::span<const std::byte> bytes, TokenScan& scan) {
  constexpr std::size_t kLanes = 32, kRounds = 32768;
  const std::size_t count = bytes.size() / sizeof(Token);
  std::size_t at = 0;
  while (count - at >= kLanes) {
    std::array<Token, kLanes> largest{}, zeros{};
    for (std::size_t round = 0; round < kRounds && count - at >= kLanes; ++round, at += kLanes) {
      std::array<Token, kLanes> tokens;
      std::memcpy(tokens.data(), bytes.data() + at * sizeof(Token), sizeof tokens);
      for (std::size_t i = 0; i < kLanes; ++i) {
        largest[i] = largest[i] < tokens[i] ? tokens[i] : largest[i];
        zeros[i] = static_cast<Token>(zeros[i] + (tokens[i] == 0 ? 1 : 0));
      }
    }
    for (std::size_t i = 0; i < kLanes; ++i) {
      scan.largest = std::max<std::uint32_t>(scan.largest, largest[i]);
      scan.zeros[i % 4] += zeros[i];
    }
  }
  for (; at < count; ++at) {
    const auto token = number_at<Token>(bytes, at * sizeof(Token));
    scan.largest = std::max<std::uint32_t>(scan.largest, token);
    scan.zeros[at % 4] += token == 0 ? 1 : 0;
  }
}

template <class Token>
void count_beyond(std::span<const std::byte> bytes, std::int64_t vocabulary, TokenScan& scan) {
  for (std::size_t i = 0; i < bytes.size() / sizeof(Token); ++i) {
    const auto token = number_at<Token>(bytes, i * sizeof(Token));
    if (token < vocabulary) continue;
    if (scan.first_beyond < 0) {
      scan.first_beyond = scan.tokens + static_cast<std::int64_t>(i);
      scan.first_value = token;
    }
    ++scan.beyond;
  }
}

template <class Token>
TokenScan scan_all(const TokenFile& file, const ScanProgress& progress) {
  constexpr std::int64_t kPiece = (std::int64_t{1} << 20) / sizeof(Token);
  TokenScan scan;
  std::vector<std::byte> piece;
  while (scan.tokens < file.tokens()) {
    const std::int64_t count = std::min(kPiece, file.tokens() - scan.tokens);
    piece.resize(static_cast<std::size_t>(count) * sizeof(Token));
    file.read_bytes(scan.tokens, piece);
    scan_piece<Token>(piece, scan);
    if (scan.largest >= file.vocabulary()) count_beyond<Token>(piece, file.vocabulary(), scan);
    scan.tokens += count;
    if (progress) progress(Bytes{scan.tokens * file.token_bytes()}, Bytes{file.tokens() * file.token_bytes()});
  }
  return scan;
}

// Widths in the file, if every second token (or all but every fourth) is 0 while the others are not: numbers that are
// twice (four times) as wide, read in parts.
std::int64_t apparent_token_bytes(const TokenFile& file, const TokenScan& scan) {
  constexpr std::int64_t kLeast = 32;  // fewer tokens may be so by chance
  if (scan.tokens < kLeast || scan.tokens % 2 != 0) return file.token_bytes();
  const auto share = [&](std::int64_t zeros, std::int64_t part) {
    return static_cast<double>(zeros) * static_cast<double>(part) / static_cast<double>(scan.tokens);
  };
  constexpr double kAll = 0.99, kTooMany = 0.9;
  const auto& zeros = scan.zeros;
  const bool upper_parts = share(zeros[1] + zeros[3], 2) >= kAll;
  if (!upper_parts || share(zeros[0], 4) > kTooMany) return file.token_bytes();
  return scan.tokens % 4 == 0 && share(zeros[2], 4) >= kAll ? 4 * file.token_bytes() : 2 * file.token_bytes();
}

}  // namespace

Status check_head(const RandomReader& file, const std::string& path) {
  const std::vector<std::byte> head = head_of(file, kFormatHead);
  if (const LlmcMagic* magic = llmc_header(head)) {
    return Failure{
        path, "",
        fmt::format("begins with llm.c's header (256 int32, of which the first is {}), before {} tokens of {} "
                    "bytes; token files have none",
                    magic->number, (file.size() - kLlmcHeader) / magic->token_bytes, magic->token_bytes),
        fmt::format("tail -c +{} {} > tokens.bin takes it off", kLlmcHeader + 1, path)};
  }
  const std::optional<FileFormat> format = recognise_format(head);
  if (!format) return ok_status();
  return Failure{path, "", fmt::format("is {}, not a token file", format->name), remedy_of(*format, path)};
}

Result<ToldFormat> format_beside(Env& env, const std::string& path) {
  const std::string directory = directory_name(path);
  if (env.exists(join_path(directory, kInfoFile))) {
    const Result<DataInfo> info = load_data_info(env, directory);
    if (!info.ok()) return info.failure();
    return ToldFormat{.by = join_path(directory, kInfoFile),
                      .vocabulary = info->vocabulary,
                      .token_bytes = info->token_bytes,
                      .tokenizer = info->tokenizer};
  }
  constexpr std::string_view kEnd = ".bin";
  if (!path.ends_with(kEnd)) return ToldFormat{};
  const std::string index = path.substr(0, path.size() - kEnd.size()) + ".idx";
  return env.exists(index) ? megatron_format(env, index) : ToldFormat{};
}

Result<std::int64_t> agreed_token_bytes(std::int64_t asked, const ToldFormat& told, const std::string& option) {
  if (asked == 0 || told.token_bytes == 0 || asked == told.token_bytes) return asked != 0 ? asked : told.token_bytes;
  return Failure{option, fmt::format("{}", asked), fmt::format("{} says {}", told.by, told.token_bytes),
                 fmt::format("{}", told.token_bytes)};
}

TokenScan scan_tokens(const TokenFile& file, const ScanProgress& progress) {
  return file.token_bytes() == 2 ? scan_all<std::uint16_t>(file, progress) : scan_all<std::uint32_t>(file, progress);
}

Status check_width(const TokenFile& file, const TokenScan& scan, const std::string& option) {
  const std::int64_t apparent = apparent_token_bytes(file, scan);
  if (apparent == file.token_bytes()) return ok_status();
  const std::int64_t parts = apparent / file.token_bytes();
  const char* zeros = parts == 2 ? "every second one is 0" : "all but every fourth are 0";
  return Failure{option, file.path(),
                 fmt::format("read as {} tokens of {} bytes, {}: it holds {} tokens of {} bytes", scan.tokens,
                             file.token_bytes(), zeros, scan.tokens / parts, apparent),
                 apparent == 4
                     ? fmt::format("data.token_bytes = 4 (--token-bytes 4) reads them so, 2 takes the file at "
                                   "its word")
                     : "write them as 16 or 32 bits each"};
}

Status check_tokens(const TokenFile& file, const TokenScan& scan, const std::string& option, bool width_is_asked) {
  if (!width_is_asked) {
    if (Status status = check_width(file, scan, option); !status.ok()) return status;
  }
  if (scan.beyond == 0) return ok_status();
  const auto as_signed = static_cast<std::int32_t>(scan.first_value);
  return Failure{
      option, file.path(),
      fmt::format("token {}{} at position {} is not below the vocabulary ({}); {} of {} tokens are not, the "
                  "largest is {}",
                  scan.first_value, as_signed < 0 && file.token_bytes() == 4 ? fmt::format(" (or {})", as_signed) : "",
                  scan.first_beyond, file.vocabulary(), scan.beyond, scan.tokens, scan.largest),
      kBeyondVocabularyHint};
}

}  // namespace trireme::data
