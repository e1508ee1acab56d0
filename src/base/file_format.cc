#include "base/file_format.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>

namespace trireme {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view kPull = "`git lfs pull` brings the file itself";
constexpr std::string_view kDownload = "download the file itself";
constexpr std::string_view kUnpack = "unpack it";

struct Magic {
  std::string_view bytes;
  FileFormat format;
  std::size_t offset = 0;
};
constexpr auto kMagics = std::to_array<Magic>({
    {"version https://git-lfs.github.com/spec/"sv, {"a git-lfs pointer", kPull}},
    {"\x93NUMPY"sv, {"a NumPy array", ""}},
    {"PK\x03\x04"sv, {"a zip archive (as PyTorch's .bin and .pt files and NumPy's .npz are)", ""}},
    {"\x80\x02\x8a\x0al\xfc"sv, {"a pickle of PyTorch", ""}},
    {"\x1f\x8b\x08"sv, {"a gzip file", kUnpack}},
    {"\x28\xb5\x2f\xfd"sv, {"a zstd file", kUnpack}},
    {"\xfd"
     "7zXZ\0"sv,
     {"an xz file", kUnpack}},
    {"BZh91AY&SY"sv, {"a bzip2 file", kUnpack}},
    {"\x04\x22\x4d\x18"sv, {"an lz4 file", kUnpack}},
    {"7z\xbc\xaf\x27\x1c"sv, {"a 7z archive", kUnpack}},
    {"ustar"sv, {"a tar archive", kUnpack}, 257},
    {"PAR1"sv, {"a Parquet file", ""}},
    {"ARROW1\0\0"sv, {"an Arrow file", ""}},
    {"ORC\x0a"sv, {"an ORC file", ""}},
    {"Obj\x01"sv, {"an Avro file", ""}},
    {"\x89HDF\r\n\x1a\n"sv, {"an HDF5 file", ""}},
    {"MMIDIDX\0\0"sv, {"the index of a data set of Megatron", ""}},
    {"TNTIDX\0\0"sv, {"the index of a data set of fairseq", ""}},
    {"GGUF"sv, {"a GGUF file", ""}},
    {"SQLite format 3\0"sv, {"an SQLite database", ""}},
    {"%PDF-"sv, {"a PDF document", ""}},
});

std::string_view view_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::uint64_t little_endian(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

// 8 bytes of length, then a JSON object of entries.
bool is_safetensors(std::string_view head) {
  constexpr std::uint64_t kMostHeader = 100'000'000;
  return head.size() > 9 && little_endian(head.substr(0, 8)) <= kMostHeader && head[8] == '{' &&
         (head[9] == '"' || head[9] == '}' || head[9] == ' ' || head[9] == '\n');
}

// Protocol 4 or 5, whose first opcode is a frame of less than 2^40 bytes.
bool is_pickle(std::string_view head) {
  return head.size() > 11 && head[0] == '\x80' && (head[1] == '\x04' || head[1] == '\x05') && head[2] == '\x95' &&
         head.substr(8, 3) == "\0\0\0"sv;
}

// Bytes of the character that begins the text; 0: none does. One that the head's end cuts counts as whole.
std::size_t character_length(std::string_view text) {
  const auto first = static_cast<unsigned char>(text.front());
  if (first < 0x20) return "\t\n\r\f"sv.find(text.front()) == std::string_view::npos ? 0 : 1;
  if (first < 0x80) return first == 0x7f ? 0 : 1;
  if (first < 0xc2 || first > 0xf4) return 0;
  const std::size_t length = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  for (std::size_t i = 1; i < std::min(length, text.size()); ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80) return 0;
  }
  return std::min(length, text.size());
}

bool is_text(std::string_view head) {
  constexpr std::size_t kLeast = 24;  // numbers may look like a shorter one
  if (head.size() < kLeast) return false;
  while (!head.empty()) {
    const std::size_t length = character_length(head);
    if (length == 0) return false;
    head.remove_prefix(length);
  }
  return true;
}

FileFormat kind_of_text(std::string_view head) {
  const std::size_t begin = head.find_first_not_of(" \t\r\n\xef\xbb\xbf");
  std::string start(head.substr(std::min(begin, head.size()), 16));
  std::ranges::transform(start, start.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (start.starts_with("<!doctype html") || start.starts_with("<html")) return {"a web page", kDownload, true};
  if (start.starts_with("<?xml")) return {"an XML document", kDownload, true};
  if (start.starts_with("{") || start.starts_with("[")) return {"JSON text", "", true};
  return {"plain text", "", true};
}

}  // namespace

std::optional<FileFormat> recognise_format(std::span<const std::byte> head_bytes) {
  const std::string_view head = view_of(head_bytes);
  for (const Magic& magic : kMagics) {
    if (head.size() >= magic.offset && head.substr(magic.offset).starts_with(magic.bytes)) return magic.format;
  }
  if (is_safetensors(head)) return FileFormat{"a safetensors file", ""};
  if (is_pickle(head)) return FileFormat{"a pickle of Python", ""};
  if (head.starts_with("\xff\xfe"sv) && head.size() > 24 && head.substr(3, 1) == "\0"sv &&
      head.substr(5, 1) == "\0"sv) {
    return FileFormat{"text in UTF-16", "", true};
  }
  if (is_text(head)) return kind_of_text(head);
  return std::nullopt;
}

}  // namespace trireme
