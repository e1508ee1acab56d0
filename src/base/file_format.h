#pragma once

// What a file is, by its first bytes: for readers of one format that are given another.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace trireme {

struct FileFormat {
  std::string_view name;    // with its article: "a git-lfs pointer"
  std::string_view remedy;  // what brings the file that was meant; "": that depends on what reads it
  bool text = false;        // it has no magic number: all of the head is text
};

// Bytes of a file that are looked at, from its start.
inline constexpr std::int64_t kFormatHead = 4096;
// head: kFormatHead bytes, or the whole file where it is shorter. Nothing: none that is known. A file of numbers that
// is taken for another format by chance begins with four bytes or more of its magic number.
std::optional<FileFormat> recognise_format(std::span<const std::byte> head);

}  // namespace trireme
