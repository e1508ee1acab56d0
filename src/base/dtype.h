#pragma once

// Element types of tensors in memory and in files.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/error.h"

namespace trireme {

enum class DType : std::uint8_t { kF32, kF64, kBF16, kF16, kI32, kI64 };

std::int64_t dtype_size(DType dtype);              // bytes an element
std::string_view dtype_name(DType dtype);          // "F32", as safetensors writes it
Result<DType> parse_dtype(std::string_view name);  // from the same

// Of numbers that take half the memory and are computed with in F32.
inline bool is_narrow(DType dtype) { return dtype == DType::kBF16 || dtype == DType::kF16; }
// What numbers of this type are computed in: F32 for the narrow ones, else the type itself.
inline DType wide_dtype(DType dtype) { return is_narrow(dtype) ? DType::kF32 : dtype; }

// Raw little-endian elements to float32, exactly, and back, rounded to the nearest (ties to even; beyond the
// range: infinity; NaN stays NaN). F32, BF16 and F16 only; sizes must match (InternalError).
bool converts_to_f32(DType dtype);
void convert_to_f32(DType dtype, std::span<const std::byte> raw, std::span<float> out);
void convert_from_f32(DType dtype, std::span<const float> values, std::span<std::byte> raw);

}  // namespace trireme
