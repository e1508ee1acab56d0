#pragma once

// Checked views as rows of floats, and loops over them that threads share. Work is cut by shape; which thread does what
// cannot change a bit.

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "engine/kernels/cpu/team.h"
#include "engine/kernels/tensor.h"

namespace trireme::kernels::cpu {

template <class T>
struct Rows {
  T* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t stride = 0;
  T* row(std::int64_t index) const { return data == nullptr ? nullptr : data + index * stride; }
};

template <class Pointer>
void check_shape(const BasicView<Pointer>& view, std::int64_t rows, std::int64_t columns, std::string_view name) {
  TRIREME_CHECK(view.rows == rows && view.columns == columns, "{} is [{}, {}], not [{}, {}]", name, view.rows,
                view.columns, rows, columns);
  TRIREME_CHECK(view.data != nullptr || rows == 0 || columns == 0, "{} has no memory", name);
  TRIREME_CHECK(view.rows <= 1 || view.row_stride >= view.columns, "rows of {} overlap", name);
}
template <class Pointer>
void check_view(const BasicView<Pointer>& view, std::int64_t rows, std::int64_t columns, std::string_view name) {
  TRIREME_CHECK(view.dtype == DType::kF32, "{} is {}, not F32", name, dtype_name(view.dtype));
  check_shape(view, rows, columns, name);
}

inline Rows<const float> readable(const ConstTensorView& view, std::int64_t rows, std::int64_t columns,
                                  std::string_view name) {
  check_view(view, rows, columns, name);
  return {reinterpret_cast<const float*>(view.data), rows, columns, view.row_stride};
}
inline Rows<float> writable(const TensorView& view, std::int64_t rows, std::int64_t columns, std::string_view name) {
  check_view(view, rows, columns, name);
  return {reinterpret_cast<float*>(view.data), rows, columns, view.row_stride};
}

// function(i, member) for i in [0, count), each member of the team a part of them in order.
template <class Function>
void parallel_members(Team& team, std::int64_t count, const Function& function) {
  if (team.size() == 1 || count <= 1) {
    for (std::int64_t i = 0; i < count; ++i) function(i, 0);
    return;
  }
  team.each([&](int member) {
    const std::int64_t each = count / team.size(), more = count % team.size();
    const std::int64_t begin = member * each + std::min<std::int64_t>(member, more);
    const std::int64_t end = begin + each + (member < more ? 1 : 0);
    for (std::int64_t i = begin; i < end; ++i) function(i, member);
  });
}

template <class Function>
void parallel_for(Team& team, std::int64_t count, const Function& function) {
  parallel_members(team, count, [&](std::int64_t i, int) { function(i); });
}

// Pieces of at most `size` of [0, total): function(begin, end).
template <class Function>
void parallel_pieces(Team& team, std::int64_t total, std::int64_t size, const Function& function) {
  parallel_for(team, (total + size - 1) / size, [&](std::int64_t piece) {
    const std::int64_t begin = piece * size;
    function(begin, begin + size < total ? begin + size : total);
  });
}

}  // namespace trireme::kernels::cpu
