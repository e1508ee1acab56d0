#pragma once

// Element types of tensors in memory and in files.

#include <cstdint>
#include <string_view>

#include "base/error.h"

namespace trireme {

enum class DType : std::uint8_t { kF32, kF64, kBF16, kF16, kI32, kI64 };

std::int64_t dtype_size(DType dtype);              // bytes an element
std::string_view dtype_name(DType dtype);          // "F32", as safetensors writes it
Result<DType> parse_dtype(std::string_view name);  // from the same

}  // namespace trireme
