#include <algorithm>
#include <cstring>

#include "base/narrow_scratch.h"
#include "engine/kernels/cpu/product.h"
#include "engine/kernels/kernels.h"

namespace trireme::kernels::cpu {
namespace {

static_assert(kNarrowInner == kGemmKBlock);

// A block of an operand as floats: where it lies, or widened into `room`.
struct Block {
  const float* data = nullptr;
  std::int64_t stride = 0;
};
Block block_of(const InRows& from, std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns,
               float* room, Team& team) {
  if (!from.is_narrow()) return {reinterpret_cast<const float*>(from.address(row, column)), from.stride()};
  constexpr std::int64_t kRowsAtATime = 16;
  parallel_pieces(team, rows, kRowsAtATime, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) from.part(row + i, column, columns, room + i * columns);
  });
  return {room, columns};
}

// A tile of c: its sums over all of k, in F32, then rounded into place.
class Tile {
 public:
  Tile(const TypedProduct& product, float* scratch, Team& team)
      : p_(product),
        team_(team),
        a_room_(scratch),
        b_room_(a_room_ + kNarrowRows * kNarrowInner),
        sums_(b_room_ + kNarrowInner * kNarrowColumns) {}

  void compute(std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns) {
    const bool narrow = p_.c.is_narrow();
    float* c = narrow ? sums_ : reinterpret_cast<float*>(p_.c.address(row, column));
    const std::int64_t stride = narrow ? columns : p_.c.stride();
    if (narrow && p_.accumulate) {
      parallel_for(team_, rows, [&](std::int64_t i) { p_.c.open(row + i, column, columns, c + i * columns, true); });
    }
    for (std::int64_t begin = 0; begin < std::max<std::int64_t>(p_.k, 1); begin += kNarrowInner) {
      const std::int64_t inner = std::min(kNarrowInner, p_.k - begin);
      const Block a = p_.transpose_a ? block_of(p_.a, begin, inner, row, rows, a_room_, team_)
                                     : block_of(p_.a, row, rows, begin, inner, a_room_, team_);
      const Block b = p_.transpose_b ? block_of(p_.b, column, columns, begin, inner, b_room_, team_)
                                     : block_of(p_.b, begin, inner, column, columns, b_room_, team_);
      multiply({.a = a.data,
                .a_stride = a.stride,
                .transpose_a = p_.transpose_a,
                .b = b.data,
                .b_stride = b.stride,
                .transpose_b = p_.transpose_b,
                .c = c,
                .c_stride = stride,
                .m = rows,
                .n = columns,
                .k = inner,
                .accumulate = p_.accumulate || begin > 0},
               team_);
    }
    if (!narrow) return;
    parallel_for(team_, rows, [&](std::int64_t i) { p_.c.done(row + i, column, columns, c + i * columns); });
  }

 private:
  const TypedProduct& p_;
  Team& team_;
  float* a_room_;
  float* b_room_;
  float* sums_;
};

}  // namespace

void multiply(const TypedProduct& product, float* scratch, Team& team) {
  if (product.a.dtype() == DType::kBF16 || product.b.dtype() == DType::kBF16) {
    return multiply_pairs(product, scratch, team);
  }
  Tile tile(product, scratch, team);
  for (std::int64_t column = 0; column < product.n; column += kNarrowColumns) {
    for (std::int64_t row = 0; row < product.m; row += kNarrowRows) {
      tile.compute(row, std::min(kNarrowRows, product.m - row), column, std::min(kNarrowColumns, product.n - column));
    }
  }
}

}  // namespace trireme::kernels::cpu
