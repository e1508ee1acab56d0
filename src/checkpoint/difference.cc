#include "checkpoint/difference.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace trireme::checkpoint {
namespace {

// As the tiles that a run writes, so that most slices are read once, whatever the layouts.
constexpr std::int64_t kBlockColumns = plan::kTileColumns;
constexpr std::int64_t kBlockElements = plan::kTileElements;

std::string name_of(const StoredState& tensor) {
  return fmt::format("{}/{}", plan::state_kind_name(tensor.kind), tensor.name);
}

[[noreturn]] void refuse(std::string message) {
  throw Error(ExitCode::kUsage, "checkpoint", "compare", std::move(message));
}

// The tensors of both, by pairs, in the order of a's.
std::vector<std::pair<const StoredState*, const StoredState*>> pairs_of(const Reader& a, const Reader& b) {
  std::vector<std::pair<const StoredState*, const StoredState*>> pairs;
  for (const StoredState& tensor : a.manifest().tensors) {
    const StoredState* other = b.manifest().find(tensor.name, tensor.kind);
    if (other == nullptr) refuse(fmt::format("{} has no tensor {}", b.directory(), name_of(tensor)));
    if (other->shape != tensor.shape) {
      refuse(fmt::format("tensor {} is [{}] in {}, but [{}] in {}", name_of(tensor), fmt::join(tensor.shape, ", "),
                         a.directory(), fmt::join(other->shape, ", "), b.directory()));
    }
    pairs.emplace_back(&tensor, other);
  }
  for (const StoredState& tensor : b.manifest().tensors) {
    if (a.manifest().find(tensor.name, tensor.kind) == nullptr) {
      refuse(fmt::format("{} has no tensor {}", a.directory(), name_of(tensor)));
    }
  }
  return pairs;
}

void compare_box(const plan::TensorBox& box, std::span<const float> a, std::span<const float> b,
                 TensorDifference& difference) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::bit_cast<std::uint32_t>(a[i]) == std::bit_cast<std::uint32_t>(b[i])) continue;
    ++difference.differing;
    difference.largest_ulp = std::max(difference.largest_ulp, ulp_distance(a[i], b[i]));
    const std::int64_t row = box.rows.begin + static_cast<std::int64_t>(i) / box.columns.length();
    const std::int64_t column = box.columns.begin + static_cast<std::int64_t>(i) % box.columns.length();
    if (difference.first_row >= 0 &&
        std::pair(row, column) > std::pair(difference.first_row, difference.first_column)) {
      continue;
    }
    difference.first_row = row;
    difference.first_column = column;
    difference.first_a = a[i];
    difference.first_b = b[i];
  }
}

// The value's place among all floats, -0 and 0 at one.
std::int64_t place_of(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto magnitude = static_cast<std::int64_t>(bits & 0x7FFFFFFFU);
  return (bits >> 31) != 0 ? -magnitude : magnitude;
}

// One side's memory.
struct Side {
  explicit Side(const Reader& opened) : reader(opened), slice(static_cast<std::size_t>(opened.largest_slice().count)) {}
  std::span<const float> read(const StoredState& tensor, const plan::TensorBox& box) {
    values.resize(static_cast<std::size_t>(box.elements()));
    reader.read_box(tensor, box, slice, values);
    return values;
  }
  const Reader& reader;
  std::vector<std::byte> slice;
  std::vector<float> values;
};

}  // namespace

std::uint64_t ulp_distance(float a, float b) {
  if (std::isnan(a) != std::isnan(b)) return std::numeric_limits<std::uint32_t>::max();
  if (std::isnan(a)) return 0;
  const std::int64_t steps = place_of(a) - place_of(b);
  return static_cast<std::uint64_t>(steps < 0 ? -steps : steps);
}

std::vector<TensorDifference> difference(const Reader& a, const Reader& b) {
  const auto pairs = pairs_of(a, b);
  Side of_a(a);
  Side of_b(b);
  std::vector<TensorDifference> differences;
  for (const auto& [tensor, other] : pairs) {
    TensorDifference& found = differences.emplace_back();
    found.name = tensor->name;
    found.kind = tensor->kind;
    found.elements = tensor->rows() * tensor->columns();
    const std::int64_t columns = std::min(tensor->columns(), kBlockColumns);
    const std::int64_t rows = kBlockElements / columns;
    for (std::int64_t row = 0; row < tensor->rows(); row += rows) {
      for (std::int64_t column = 0; column < tensor->columns(); column += columns) {
        const plan::TensorBox box{{row, std::min(row + rows, tensor->rows())},
                                  {column, std::min(column + columns, tensor->columns())}};
        compare_box(box, of_a.read(*tensor, box), of_b.read(*other, box), found);
      }
    }
  }
  return differences;
}

}  // namespace trireme::checkpoint
