#pragma once

// Rows of views of any type as floats: those of F32 where they lie, narrow ones by way of a copy in `room`, which is
// widened before use and rounded back after it.

#include <cstdint>
#include <string_view>
#include <type_traits>
#include <vector>

#include "engine/kernels/cpu/rows.h"
#include "engine/kernels/cpu/simd.h"

namespace trireme::kernels::cpu {

// What TypedRows need memory for: floats for some rows of one length, if any of the types is narrow.
class Room {
 public:
  Room(bool needed, int rows, std::int64_t columns)
      : columns_(columns), values_(needed ? static_cast<std::size_t>(rows * columns) : 0) {}
  float* operator[](int row) { return values_.empty() ? nullptr : values_.data() + row * columns_; }

 private:
  std::int64_t columns_;
  std::vector<float> values_;
};

template <class Byte>  // std::byte, const or not
class TypedRows {
 public:
  TypedRows() = default;
  TypedRows(const BasicView<Byte*>& view, std::int64_t rows, std::int64_t columns, std::string_view name)
      : data_(view.data), dtype_(view.dtype), rows_(rows), columns_(columns), stride_(view.row_stride) {
    TRIREME_CHECK(dtype_ == DType::kF32 || is_narrow(), "{} is {}; the CPU kernels take F32, BF16 and F16", name,
                  dtype_name(dtype_));
    check_shape(view, rows, columns, name);
  }

  bool empty() const { return data_ == nullptr; }
  bool is_narrow() const { return trireme::is_narrow(dtype_); }
  DType dtype() const { return dtype_; }
  std::int64_t rows() const { return rows_; }
  std::int64_t stride() const { return stride_; }  // elements
  Byte* address(std::int64_t row, std::int64_t column = 0) const {
    return data_ == nullptr ? nullptr : data_ + (row * stride_ + column) * dtype_size(dtype_);
  }

  // Where rows of F32 or BF16 lie.
  template <class Number>
  auto* numbers(std::int64_t row, std::int64_t column = 0) const {
    using Place = std::conditional_t<std::is_const_v<Byte>, const Number, Number>;
    return reinterpret_cast<Place*>(address(row, column));
  }

  // Brings a part of a row into the caches: where rows of which a part is read are too short for the processor to read
  // ahead by itself.
  void prefetch(std::int64_t row, std::int64_t begin, std::int64_t count) const {
    constexpr std::int64_t kLineBytes = 64;
    const Byte* part = address(row, begin);
    const std::int64_t bytes = count * dtype_size(dtype_);
    for (std::int64_t at = 0; at < bytes; at += kLineBytes) __builtin_prefetch(part + at);
  }

  // Elements [begin, begin + count) of a row, to read.
  const float* part(std::int64_t row, std::int64_t begin, std::int64_t count, float* room) const {
    if (data_ == nullptr) return nullptr;
    if (!is_narrow()) return reinterpret_cast<const float*>(address(row, begin));
    simd::widen(dtype_, reinterpret_cast<const std::uint16_t*>(address(row, begin)), room, count);
    return room;
  }
  const float* row(std::int64_t row, float* room) const { return part(row, 0, columns_, room); }

  // The same to write: what is there is in it if `old`. done() with what this gave puts it into place.
  float* open(std::int64_t row, std::int64_t begin, std::int64_t count, float* room, bool old) const {
    if (data_ == nullptr) return nullptr;
    if (!is_narrow()) return reinterpret_cast<float*>(address(row, begin));
    if (old) part(row, begin, count, room);
    return room;
  }
  void done(std::int64_t row, std::int64_t begin, std::int64_t count, const float* values) const {
    if (data_ == nullptr || !is_narrow()) return;
    simd::narrow(dtype_, values, reinterpret_cast<std::uint16_t*>(address(row, begin)), count);
  }
  float* open(std::int64_t row, float* room, bool old = false) const { return open(row, 0, columns_, room, old); }
  void done(std::int64_t row, const float* values) const { done(row, 0, columns_, values); }

 private:
  Byte* data_ = nullptr;
  DType dtype_ = DType::kF32;
  std::int64_t rows_ = 0;
  std::int64_t columns_ = 0;
  std::int64_t stride_ = 0;
};

using InRows = TypedRows<const std::byte>;
using OutRows = TypedRows<std::byte>;

inline InRows in_rows(const ConstTensorView& view, std::int64_t rows, std::int64_t columns, std::string_view name) {
  return {view, rows, columns, name};
}
inline InRows optional_rows(const ConstTensorView& view, std::int64_t rows, std::int64_t columns,
                            std::string_view name) {
  return view.empty() ? InRows() : in_rows(view, rows, columns, name);
}
inline OutRows out_rows(const TensorView& view, std::int64_t rows, std::int64_t columns, std::string_view name) {
  return {view, rows, columns, name};
}
inline OutRows optional_rows(const TensorView& view, std::int64_t rows, std::int64_t columns, std::string_view name) {
  return view.empty() ? OutRows() : out_rows(view, rows, columns, name);
}

template <class... Rows>
bool any_narrow(const Rows&... rows) {
  return (rows.is_narrow() || ...);
}

// Whether the rows that there are lie in BF16: then the loops that know it read and write them where they are.
template <class... Rows>
bool lie_in_bf16(const Rows&... rows) {
  return ((rows.empty() || rows.dtype() == DType::kBF16) && ...);
}

// One row that every thread reads: null where the view is empty.
class SharedRow {
 public:
  SharedRow(const ConstTensorView& view, std::int64_t size, std::string_view name) {
    const InRows rows = optional_rows(view, 1, size, name);
    if (rows.is_narrow()) values_.resize(static_cast<std::size_t>(size));
    data_ = rows.empty() ? nullptr : rows.row(0, values_.data());
  }
  SharedRow(const SharedRow&) = delete;
  SharedRow& operator=(const SharedRow&) = delete;
  const float* data() const { return data_; }

 private:
  std::vector<float> values_;
  const float* data_ = nullptr;
};

}  // namespace trireme::kernels::cpu
