#include "base/file_format.h"

#include <string>

#include <gtest/gtest.h>

#include "base/random.h"

namespace trireme {
namespace {

using namespace std::string_literals;

std::string name_of(const std::string& head) {
  const std::optional<FileFormat> format = recognise_format(std::as_bytes(std::span(head)));
  return format ? std::string(format->name) : "";
}

TEST(FileFormat, IsToldByItsFirstBytes) {
  const std::string pad(64, '\x01');
  const struct {
    std::string head;
    std::string name;
  } cases[] = {
      {"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n", "a git-lfs pointer"},
      {"\x93NUMPY\x01\0v\0{'descr': '<u2'"s, "a NumPy array"},
      {"PK\x03\x04" + pad, "a zip archive (as PyTorch's .bin and .pt files and NumPy's .npz are)"},
      {"\x80\x02\x8a\x0al\xfc\x9c\x46\xf9" + pad, "a pickle of PyTorch"},
      {"\x80\x04\x95\x12\x03\0\0\0\0\0\0\x8c"s + pad, "a pickle of Python"},
      {"\x1f\x8b\x08\0"s + pad, "a gzip file"},
      {"\x28\xb5\x2f\xfd" + pad, "a zstd file"},
      {"\xfd"
       "7zXZ\0"s +
           pad,
       "an xz file"},
      {"BZh91AY&SY" + pad, "a bzip2 file"},
      {"PAR1" + pad, "a Parquet file"},
      {"ARROW1\0\0"s + pad, "an Arrow file"},
      {"\x89HDF\r\n\x1a\n" + pad, "an HDF5 file"},
      {"MMIDIDX\0\0\x01"s + pad, "the index of a data set of Megatron"},
      {"GGUF\x03" + pad, "a GGUF file"},
      {"\x40\0\0\0\0\0\0\0{\"w\":{}}"s + pad, "a safetensors file"},
      {std::string(257, '\0') + "ustar\0"s, "a tar archive"},
      {"  <!DOCTYPE html><html lang=en>", "a web page"},
      {"<?xml version=\"1.0\"?><Error>AccessDenied</Error>", "an XML document"},
      {"{\"error\": \"Repository not found\"}", "JSON text"},
      {"It was the best of times, it was the worst", "plain text"},
      {"caf\xc3\xa9 na\xc3\xafve, \xe2\x82\xac and \xf0\x9f\x9a\xa3 too", "plain text"},
      {"plain text that is cut in a character \xe2\x82", "plain text"},
      {"\xff\xfeT\0h\0i\0s\0 \0i\0s\0 \0t\0e\0x\0t\0 \0o\0f\0"s, "text in UTF-16"},
  };
  for (const auto& one : cases) EXPECT_EQ(name_of(one.head), one.name) << one.head;
}

TEST(FileFormat, RemediesSayWhatBringsTheFile) {
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\n";
  EXPECT_NE(recognise_format(std::as_bytes(std::span(pointer)))->remedy.find("git lfs pull"), std::string::npos);
}

TEST(FileFormat, NumbersAreNoOtherFormat) {
  EXPECT_EQ(name_of(""), "");
  EXPECT_EQ(name_of("oars"), "");  // too short to be sure
  EXPECT_EQ(name_of(std::string(4096, '\0')), "");
  std::string letters;  // as tokens of 16 bits
  for (int i = 0; i < 64; ++i) letters += std::string(1, static_cast<char>('a' + i % 26)) + '\0';
  EXPECT_EQ(name_of(letters), "");
  for (std::uint64_t file = 0; file < 2000; ++file) {
    std::string random;
    for (std::uint64_t i = 0; i < 32; ++i) {
      const std::uint32_t bits = random_bits({7, file}, i);
      random += std::string(1, static_cast<char>(bits)) + static_cast<char>(bits >> 8);
    }
    EXPECT_EQ(name_of(random), "") << file;
  }
}

}  // namespace
}  // namespace trireme
