#pragma once

// Tests of one kernel at a time: run by the reference loops in float64 and float32 and by the CPU kernels, there also
// on two and three threads, at other alignments and row strides, and on parts of the rows and columns. The memory
// around each tensor is NaN: a kernel that reads there shows it in its result, one that writes there is caught.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <list>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "engine/kernels/cpu/cpu_kernels.h"
#include "engine/kernels/reference/access.h"
#include "engine/kernels/reference/reference_kernels.h"

namespace trireme::kernels {

// Indices [begin, begin + count) of `total`.
struct Extent {
  std::int64_t total = 1;
  std::int64_t begin = 0;
  std::int64_t count = 1;
};
inline Extent whole(std::int64_t n) { return {n, 0, n}; }

// The part of a problem that is computed, and how its tensors lie in memory.
struct Place {
  Extent rows;
  Extent columns;
  std::int64_t offset = 0;   // elements before a tensor: its alignment
  std::int64_t padding = 0;  // elements between two rows
};

// Normal(0, 1) numbers by name, made once.
class Inputs {
 public:
  const std::vector<double>& normal(std::string_view name, std::int64_t count) {
    std::vector<double>& values = values_[fmt::format("{} {}", name, count)];
    if (values.empty()) {
      const RandomKey key{1, stream_of("test", name)};
      for (std::int64_t i = 0; i < count; ++i) {
        values.push_back(static_cast<float>(random_normal(key, static_cast<std::uint64_t>(i))));  // the same as float
      }
    }
    return values;
  }

 private:
  std::map<std::string, std::vector<double>> values_;
};

template <class T>
struct Output {
  std::string name;
  Extent rows;
  Extent columns;
  std::vector<T> values;  // [rows.count, columns.count]
  T at(std::int64_t i, std::int64_t j) const { return values[static_cast<std::size_t>(i * columns.count + j)]; }
};

// The tensors of one run, as `place` says.
template <class T>
class Workspace {
 public:
  Workspace(const Place& place, Inputs& inputs)
      : rows(place.rows), columns(place.columns), place_(place), inputs_(inputs) {}

  const Extent rows;
  const Extent columns;

  // Random numbers: those of the whole tensor `name`, cut to the part.
  ConstTensorView random(std::string_view name, Extent r, Extent c) { return make(name, r, c, Fill::kRandom, false); }
  ConstTensorView random(std::string_view name) { return random(name, rows, columns); }
  // Their absolute values.
  ConstTensorView positive(std::string_view name, Extent r, Extent c) {
    return make(name, r, c, Fill::kPositive, false);
  }
  // Results, NaN before the run; or with numbers that the kernel updates.
  TensorView output(std::string_view name, Extent r, Extent c) { return make(name, r, c, Fill::kNone, true); }
  TensorView output(std::string_view name) { return output(name, rows, columns); }
  TensorView update(std::string_view name, Extent r, Extent c) { return make(name, r, c, Fill::kRandom, true); }
  TensorView update(std::string_view name) { return update(name, rows, columns); }
  TensorView update_positive(std::string_view name, Extent r, Extent c) {
    return make(name, r, c, Fill::kPositive, true);
  }
  // Neither: whatever the kernel leaves there.
  TensorView scratch(std::int64_t count) { return make("scratch", whole(1), whole(count), Fill::kNone, false); }

  // Results in the order they were asked for. Memory around the tensors must be untouched.
  std::vector<Output<T>> results() const {
    std::vector<Output<T>> outputs;
    for (const Piece& piece : pieces_) {
      Output<T> output{piece.name, piece.rows, piece.columns, {}};
      std::size_t next = 0;
      for (std::int64_t i = 0; i < piece.rows.count; ++i) {
        for (std::int64_t j = 0; j < piece.columns.count; ++j) {
          const std::size_t at = static_cast<std::size_t>(place_.offset + i * piece.stride + j);
          for (; next < at; ++next) expect_untouched(piece, next);
          output.values.push_back(piece.memory[next++]);
        }
      }
      for (; next < piece.memory.size(); ++next) expect_untouched(piece, next);
      if (piece.output) outputs.push_back(std::move(output));
    }
    return outputs;
  }

 private:
  enum class Fill { kNone, kRandom, kPositive };
  struct Piece {
    std::string name;
    Extent rows, columns;
    std::int64_t stride;
    bool output;
    std::vector<T> memory;
  };
  static constexpr std::int64_t kBehind = 17;  // elements behind a tensor

  TensorView make(std::string_view name, Extent r, Extent c, Fill fill, bool output) {
    const std::int64_t stride = c.count + (r.count > 1 ? place_.padding : 0);
    pieces_.push_back({std::string(name), r, c, stride, output, {}});
    std::vector<T>& memory = pieces_.back().memory;
    memory.assign(static_cast<std::size_t>(place_.offset + r.count * stride + kBehind),
                  std::numeric_limits<T>::quiet_NaN());
    T* data = memory.data() + place_.offset;
    if (fill != Fill::kNone) {
      const std::vector<double>& from = inputs_.normal(name, r.total * c.total);
      for (std::int64_t i = 0; i < r.count; ++i) {
        for (std::int64_t j = 0; j < c.count; ++j) {
          const double value = from[static_cast<std::size_t>((r.begin + i) * c.total + c.begin + j)];
          data[i * stride + j] = static_cast<T>(fill == Fill::kPositive ? std::abs(value) : value);
        }
      }
    }
    TensorView view = make_view(reinterpret_cast<std::byte*>(data), reference::dtype_of<T>(), r.count, c.count);
    view.row_stride = stride;
    return view;
  }
  static void expect_untouched(const Piece& piece, std::size_t at) {
    if (!std::isnan(piece.memory[at])) ADD_FAILURE() << piece.name << ": written outside, at " << at;
  }

  Place place_;
  Inputs& inputs_;
  std::list<Piece> pieces_;
};

// The bits of `part` are those of the same elements of `all`. One message a tensor.
inline void expect_same_bits(const std::vector<Output<float>>& part, const std::vector<Output<float>>& all) {
  ASSERT_EQ(part.size(), all.size());
  for (std::size_t n = 0; n < part.size(); ++n) {
    const Output<float>& a = part[n];
    const Output<float>& b = all[n];
    const auto differs = [&](std::int64_t i, std::int64_t j) {
      const float other = b.at(a.rows.begin - b.rows.begin + i, a.columns.begin - b.columns.begin + j);
      if (std::bit_cast<std::uint32_t>(a.at(i, j)) == std::bit_cast<std::uint32_t>(other)) return false;
      ADD_FAILURE() << fmt::format("{}[{}, {}]: {} and {}", a.name, i, j, a.at(i, j), other);
      return true;
    };
    for (std::int64_t i = 0, bad = 0; i < a.rows.count && bad == 0; ++i) {
      for (std::int64_t j = 0; j < a.columns.count && bad == 0; ++j) bad += differs(i, j) ? 1 : 0;
    }
  }
}

// |x - y| <= tolerance * max(1, |y|). One message a tensor.
template <class T>
void expect_near(const std::vector<Output<float>>& results, const std::vector<Output<T>>& oracle, double tolerance) {
  ASSERT_EQ(results.size(), oracle.size());
  for (std::size_t n = 0; n < results.size(); ++n) {
    ASSERT_EQ(results[n].values.size(), oracle[n].values.size());
    double worst = 0.0;
    for (std::size_t i = 0; i < results[n].values.size(); ++i) {
      const double expected = oracle[n].values[i];
      const double error = std::abs(results[n].values[i] - expected) / std::max(1.0, std::abs(expected));
      worst = error <= worst ? worst : error;  // NaN stays
    }
    EXPECT_LE(worst, tolerance) << results[n].name << " against float" << 8 * sizeof(T);
  }
}

// What a kernel promises.
struct Promise {
  double tolerance = 2e-6;          // against the references, as expect_near
  bool reference_bits = false;      // the float32 reference's bits
  std::int64_t rows_at_a_time = 0;  // so many rows alone have the bits that they have among others; 0: rows are summed
  bool columns_alone = false;       // and so have some columns alone
};

// Numbers by hand as one row.
inline TensorView row_of(std::vector<float>& values) {
  return make_view(reinterpret_cast<std::byte*>(values.data()), DType::kF32, 1,
                   static_cast<std::int64_t>(values.size()));
}

template <class T, class Run>
std::vector<Output<T>> run_at(const Place& place, Inputs& inputs, Kernels& kernels, const Run& run) {
  Workspace<T> workspace(place, inputs);
  run(kernels, workspace);
  return workspace.results();
}

// Rows and columns alone.
template <class Run>
void expect_parts(const Place& all, const Promise& promise, Inputs& inputs, const std::vector<Output<float>>& result,
                  const Run& run) {
  CpuKernels kernels(1);
  const std::int64_t group = promise.rows_at_a_time;
  for (std::int64_t begin = 0, step = std::max(group, all.rows.count / 3 / std::max<std::int64_t>(group, 1) * group);
       group > 0 && begin < all.rows.count; begin += step) {
    SCOPED_TRACE(fmt::format("row {} + {}", begin, group));
    Place part = all;
    part.rows = {all.rows.count, begin, group};
    expect_same_bits(run_at<float>(part, inputs, kernels, run), result);
  }
  for (const std::int64_t begin : {0, 1, 5, 16, 40}) {
    for (const std::int64_t count : {1, 3, 16, 33}) {
      if (!promise.columns_alone || begin + count > all.columns.count) continue;
      SCOPED_TRACE(fmt::format("columns {} + {}", begin, count));
      Place part = all;
      part.columns = {all.columns.count, begin, count};
      part.offset = begin % 7;
      expect_same_bits(run_at<float>(part, inputs, kernels, run), result);
    }
  }
}

// run(kernels, workspace) calls one kernel on tensors of the workspace. Checks all that `promise` and kernels.h say.
template <class Run>
void expect_kernel(std::int64_t rows, std::int64_t columns, const Promise& promise, const Run& run) {
  SCOPED_TRACE(fmt::format("{} rows, {} columns", rows, columns));
  Inputs inputs;
  ReferenceKernels reference;
  CpuKernels one(1), two(2), three(3);
  const Place all{whole(rows), whole(columns)};
  const auto result = run_at<float>(all, inputs, one, run);
  ASSERT_FALSE(result.empty());
  expect_near(result, run_at<double>(all, inputs, reference, run), promise.tolerance);
  const auto narrow = run_at<float>(all, inputs, reference, run);
  if (promise.reference_bits) {
    expect_same_bits(result, narrow);
  } else {
    expect_near(result, narrow, 2 * promise.tolerance);
  }
  for (CpuKernels* more : {&two, &three}) {
    SCOPED_TRACE(fmt::format("{} threads", more->threads()));
    expect_same_bits(run_at<float>(all, inputs, *more, run), result);
  }
  for (const std::int64_t offset : {1, 6}) {
    SCOPED_TRACE(fmt::format("offset {}, two threads", offset));
    Place moved = all;
    moved.offset = offset;
    moved.padding = offset / 2;
    expect_same_bits(run_at<float>(moved, inputs, two, run), result);
  }
  expect_parts(all, promise, inputs, result, run);
}

// All of {1, 3, 7, 130} rows by {1, 3, 17, 65, 257, 1000} columns.
template <class Run>
void expect_kernel_on_shapes(const Promise& promise, const Run& run) {
  for (const std::int64_t rows : {1, 3, 7, 130}) {
    for (const std::int64_t columns : {1, 3, 17, 65, 257, 1000}) expect_kernel(rows, columns, promise, run);
  }
}

}  // namespace trireme::kernels
