#pragma once

// Views of device memory: pointer, element type, rows, columns, row stride. They own nothing; whoever holds the Buffer
// does. A vector is one row. The memory may be a device's: only kernels and Device's copies may touch it.

#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "base/dtype.h"

namespace trireme::kernels {

template <class Pointer>
struct BasicView {
  Pointer data = nullptr;
  DType dtype = DType::kF32;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t row_stride = 0;  // elements from a row to the next; columns where contiguous

  std::int64_t elements() const { return rows * columns; }
  bool contiguous() const { return row_stride == columns || rows <= 1; }
  bool empty() const { return data == nullptr; }
};

struct TensorView : BasicView<std::byte*> {};
struct ConstTensorView : BasicView<const std::byte*> {
  ConstTensorView() = default;
  ConstTensorView(const TensorView& view)  // NOLINT(google-explicit-constructor)
      : BasicView{view.data, view.dtype, view.rows, view.columns, view.row_stride} {}
  explicit ConstTensorView(const BasicView<const std::byte*>& view) : BasicView(view) {}
};

// A contiguous [rows, columns] view.
inline TensorView make_view(std::byte* data, DType dtype, std::int64_t rows, std::int64_t columns) {
  return TensorView{{data, dtype, rows, columns, columns}};
}
inline ConstTensorView make_view(const std::byte* data, DType dtype, std::int64_t rows, std::int64_t columns) {
  return ConstTensorView(BasicView<const std::byte*>{data, dtype, rows, columns, columns});
}

// Part of a view; the same memory.
template <class View>
View row_range(View view, std::int64_t begin, std::int64_t count) {
  TRIREME_CHECK(begin >= 0 && count >= 0 && begin + count <= view.rows, "rows {}+{} of {}", begin, count, view.rows);
  view.data += begin * view.row_stride * dtype_size(view.dtype);
  view.rows = count;
  return view;
}
template <class View>
View column_range(View view, std::int64_t begin, std::int64_t count) {
  TRIREME_CHECK(begin >= 0 && count >= 0 && begin + count <= view.columns, "columns {}+{} of {}", begin, count,
                view.columns);
  view.data += begin * dtype_size(view.dtype);
  view.columns = count;
  return view;
}
// A contiguous view seen as one row.
template <class View>
View flattened(View view) {
  TRIREME_CHECK(view.contiguous());
  const std::int64_t n = view.elements();
  view.rows = 1;
  view.columns = n;
  view.row_stride = n;
  return view;
}

template <class... Views>
bool all_bf16(const Views&... views) {
  return ((views.dtype == DType::kBF16) && ...);
}

}  // namespace trireme::kernels
