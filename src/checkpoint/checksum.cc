#include "checkpoint/checksum.h"

#include <fmt/format.h>
#include <xxhash.h>

namespace trireme::checkpoint {

std::string checksum_of(std::span<const std::byte> data) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(data.data(), data.size()));
  std::string text;
  for (const unsigned char byte : canonical.digest) text += fmt::format("{:02x}", byte);
  return text;
}

std::string checksum_of(std::string_view text) {
  return checksum_of(std::as_bytes(std::span(text.data(), text.size())));
}

}  // namespace trireme::checkpoint
