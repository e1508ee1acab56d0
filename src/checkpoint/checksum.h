#pragma once

// XXH3, 128 bits, as the canonical 32 hexadecimal digits.

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace trireme::checkpoint {

std::string checksum_of(std::span<const std::byte> data);
std::string checksum_of(std::string_view text);

}  // namespace trireme::checkpoint
