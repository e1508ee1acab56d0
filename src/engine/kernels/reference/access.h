#pragma once

// Element access for the reference loops: a view becomes a Matrix or a Vector of T once its type and shape
// are checked.

#include <cstdint>
#include <string_view>
#include <type_traits>

#include "base/check.h"
#include "engine/kernels/tensor.h"

namespace trireme::kernels::reference {

template <class T>
constexpr DType dtype_of() {
  static_assert(std::is_same_v<T, float> || std::is_same_v<T, double>);
  return std::is_same_v<T, float> ? DType::kF32 : DType::kF64;
}

// Calls function(T{}) with T = float or double.
template <class Function>
void with_type(DType dtype, Function&& function) {
  TRIREME_CHECK(dtype == DType::kF32 || dtype == DType::kF64, "the reference kernels compute in F32 and F64, not {}",
                dtype_name(dtype));
  if (dtype == DType::kF32) {
    function(float{});
  } else {
    function(double{});
  }
}

template <class T>
struct Matrix {
  T* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t row_stride = 0;
  T& operator()(std::int64_t row, std::int64_t column) const { return data[row * row_stride + column]; }
};

template <class T>
struct Vector {
  T* data = nullptr;
  std::int64_t size = 0;
  std::int64_t stride = 1;
  T& operator[](std::int64_t index) const { return data[index * stride]; }
};

template <class Pointer>
void check_view(const BasicView<Pointer>& view, DType dtype, std::int64_t rows, std::int64_t columns,
                std::string_view name) {
  TRIREME_CHECK(view.dtype == dtype, "{} is {}, not {}", name, dtype_name(view.dtype), dtype_name(dtype));
  TRIREME_CHECK(view.rows == rows && view.columns == columns, "{} is [{}, {}], not [{}, {}]", name, view.rows,
                view.columns, rows, columns);
  TRIREME_CHECK(view.data != nullptr || rows == 0 || columns == 0, "{} has no memory", name);
  TRIREME_CHECK(view.rows <= 1 || view.row_stride >= view.columns, "rows of {} overlap: stride {} of {} columns", name,
                view.row_stride, view.columns);
}

template <class T>
Matrix<const T> readable(const ConstTensorView& view, std::int64_t rows, std::int64_t columns, std::string_view name) {
  check_view(view, dtype_of<T>(), rows, columns, name);
  return {reinterpret_cast<const T*>(view.data), rows, columns, view.row_stride};
}
template <class T>
Matrix<T> writable(const TensorView& view, std::int64_t rows, std::int64_t columns, std::string_view name) {
  check_view(view, dtype_of<T>(), rows, columns, name);
  return {reinterpret_cast<T*>(view.data), rows, columns, view.row_stride};
}

// `size` numbers: one row, or one column with any stride.
template <class T>
Vector<const T> readable_vector(const ConstTensorView& view, std::int64_t size, std::string_view name) {
  const bool column = view.columns == 1;
  check_view(view, dtype_of<T>(), column ? size : 1, column ? 1 : size, name);
  return {reinterpret_cast<const T*>(view.data), size, column ? view.row_stride : 1};
}
template <class T>
Vector<T> writable_vector(const TensorView& view, std::int64_t size, std::string_view name) {
  const bool column = view.columns == 1;
  check_view(view, dtype_of<T>(), column ? size : 1, column ? 1 : size, name);
  return {reinterpret_cast<T*>(view.data), size, column ? view.row_stride : 1};
}

// The sum of term(row) over `rows`: chains of 64 rows, each from zero, added in ascending order.
inline constexpr std::int64_t kChainRows = 64;
template <class T, class Term>
T sum_of_chains(std::int64_t rows, Term&& term) {
  T total = 0;
  for (std::int64_t begin = 0; begin < rows; begin += kChainRows) {
    T chain = 0;
    for (std::int64_t row = begin; row < rows && row < begin + kChainRows; ++row) chain += term(row);
    total += chain;
  }
  return total;
}

}  // namespace trireme::kernels::reference
