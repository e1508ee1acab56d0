#include <algorithm>
#include <cstring>

#include "base/narrow_scratch.h"
#include "base/units.h"
#include "engine/kernels/cpu/pair_block.h"
#include "engine/kernels/cpu/product.h"
#include "engine/kernels/cpu/shares.h"

namespace trireme::kernels::cpu {
namespace {

using simd::kPairColumns;
using simd::kPairRoom;
using simd::kPairRows;

// Words of a panel: its pairs, and a cache line more, since panels are written side by side, a pair of each at a time,
// and would share few sets of the cache if they were powers of two apart. A panel of a has what is written behind it,
// too.
constexpr std::int64_t kLine = 16;
constexpr std::int64_t a_panel_words(std::int64_t pairs) { return pairs * kPairRows + kPairRoom - kPairRows + kLine; }
constexpr std::int64_t b_panel_words(std::int64_t pairs) { return pairs * kPairColumns + kLine; }
constexpr std::int64_t kPanels = (kPairTileRows + kPairRows - 1) / kPairRows;
static_assert(kPairTileColumns / kPairColumns * b_panel_words(kPairTileInner / 2) <= pair_scratch_b());
static_assert(kPairTileColumns % kPairColumns == 0 && kPairTileInner % kGemmKBlock == 0);
static_assert(kPanels * a_panel_words(kPairTileInner / 2) <= pair_scratch_a());

// The most of a contraction that is one tile where rows of a are read where they lie: a tile of b has fewer columns
// then, and sums need no room between tiles.
constexpr std::int64_t kLongestTile = 3 * kPairTileInner;

// Equal parts of `size`, multiples of `unit`, of at most `most`, which is one.
std::int64_t even_part(std::int64_t size, std::int64_t most, std::int64_t unit) {
  const std::int64_t parts = std::max<std::int64_t>(divide_up(size, most), 1);
  return std::min(most, divide_up(size, parts * unit) * unit);
}

// Columns that are packed at a time, row by row: many panels, so that rows are read in long pieces.
constexpr std::int64_t kPackColumns = 512;

// Of a, b and c: rows [row, row + rows) of op(a), and so on.
struct Tile {
  std::int64_t row = 0, rows = 0;
  std::int64_t column = 0, columns = 0;
  std::int64_t begin = 0, inner = 0;
  std::int64_t pairs() const { return (inner + 1) / 2; }
};

// The scratch: pairs of a tile of a and of b, and the sums of c where it is narrow and the contraction has several
// tiles.
struct TileScratch {
  explicit TileScratch(float* scratch)
      : a(reinterpret_cast<std::uint32_t*>(scratch)),
        b(a + pair_scratch_a()),
        sums(scratch + pair_scratch_a() + pair_scratch_b()) {}
  std::uint32_t* a;
  std::uint32_t* b;
  float* sums;
};

// Where pair_block finds the rows of a: panel q at data + q * panel.
struct Pairs {
  const std::uint16_t* data = nullptr;
  std::int64_t row = 0, pair = 0, panel = 0;
};

// `count` numbers of an operand in BF16: where they lie, or rounded to `room`.
const std::uint16_t* numbers(const InRows& from, std::int64_t row, std::int64_t column, std::int64_t count,
                             std::uint16_t* room) {
  if (from.dtype() == DType::kBF16) return reinterpret_cast<const std::uint16_t*>(from.address(row, column));
  TRIREME_CHECK(from.dtype() == DType::kF32, "a product of BF16 and {}", dtype_name(from.dtype()));
  simd::narrow(DType::kBF16, reinterpret_cast<const float*>(from.address(row, column)), room, count);
  return room;
}

// The pairs of rows [begin, begin + inner) of columns of `from`, from `column` on, to panels. BF16 rows are read where
// they lie.
void interleave_rows(const InRows& from, std::int64_t begin, std::int64_t inner, std::int64_t column,
                     const simd::PanelShape& shape, std::uint32_t* to) {
  constexpr std::int64_t kAhead = 8;
  std::uint16_t first[kPackColumns], second[kPackColumns];
  for (std::int64_t k = 0; k < inner; k += 2, to += shape.width) {
    for (std::int64_t ahead = k + kAhead; ahead < std::min(k + kAhead + 2, inner); ++ahead) {
      from.prefetch(begin + ahead, column, shape.columns);
    }
    simd::interleave(numbers(from, begin + k, column, shape.columns, first),
                     k + 1 < inner ? numbers(from, begin + k + 1, column, shape.columns, second) : nullptr, shape, to);
  }
}

// interleave_rows of all columns of a tile, from `column` of `from` on: panels of `width` columns.
void interleave_tile(const InRows& from, const Tile& tile, std::int64_t column, std::int64_t columns,
                     std::int64_t width, std::int64_t room, std::int64_t panel, std::uint32_t* to) {
  const std::int64_t step = even_part(columns, kPackColumns / width * width, width);
  for (std::int64_t at = 0; at < columns; at += step) {
    interleave_rows(from, tile.begin, tile.inner, column + at, {std::min(step, columns - at), width, room, panel},
                    to + at / width * panel);
  }
}

// Whether rows of a are read where they lie: those of BF16 that have their pairs side by side, the last one whole.
bool lies_in_pairs(const TypedProduct& p) { return !p.transpose_a && p.a.dtype() == DType::kBF16 && p.k % 2 == 0; }

Pairs pairs_of_rows(const TypedProduct& p, const Tile& tile, std::uint32_t* room) {
  if (lies_in_pairs(p)) {
    return {numbers(p.a, tile.row, tile.begin, tile.inner, nullptr), p.a.stride(), 2, kPairRows * p.a.stride()};
  }
  const std::int64_t stride = 2 * tile.pairs();
  auto* to = reinterpret_cast<std::uint16_t*>(room);
  for (std::int64_t i = 0; i < tile.rows; ++i) {
    std::uint16_t* row = to + i * stride;
    const std::uint16_t* from = numbers(p.a, tile.row + i, tile.begin, tile.inner, row);
    if (from != row) std::memcpy(row, from, static_cast<std::size_t>(tile.inner) * sizeof(*row));
    if (tile.inner < stride) row[tile.inner] = 0;
  }
  return {to, stride, 2, kPairRows * stride};
}

Pairs pack_a(const TypedProduct& p, const Tile& tile, std::uint32_t* room) {
  if (!p.transpose_a) return pairs_of_rows(p, tile, room);
  const std::int64_t panel = a_panel_words(tile.pairs());
  interleave_tile(p.a, tile, tile.row, tile.rows, kPairRows, kPairRoom, panel, room);
  return {reinterpret_cast<const std::uint16_t*>(room), 2, 2 * kPairRows, 2 * panel};
}

// Rows [column, column + columns) of b become columns of pairs.
void transpose_rows(const InRows& b, const Tile& tile, std::int64_t column, std::int64_t columns, std::uint32_t* to) {
  if (b.dtype() == DType::kBF16) {
    return simd::transpose_pairs(numbers(b, column, tile.begin, tile.inner, nullptr), b.stride(), columns, tile.inner,
                                 to);
  }
  constexpr std::int64_t kAtATime = 64;
  std::uint16_t rounded[kPairColumns * kAtATime];
  for (std::int64_t k = 0; k < tile.inner; k += kAtATime) {
    const std::int64_t count = std::min(kAtATime, tile.inner - k);
    for (std::int64_t j = 0; j < columns; ++j) numbers(b, column + j, tile.begin + k, count, rounded + j * kAtATime);
    simd::transpose_pairs(rounded, kAtATime, columns, count, to + k / 2 * kPairColumns);
  }
}

void pack_b(const TypedProduct& p, const Tile& tile, std::uint32_t* room) {
  const std::int64_t panel = b_panel_words(tile.pairs());
  if (!p.transpose_b) {
    return interleave_tile(p.b, tile, tile.column, tile.columns, kPairColumns, kPairColumns, panel, room);
  }
  for (std::int64_t column = 0; column < tile.columns; column += kPairColumns, room += panel) {
    transpose_rows(p.b, tile, tile.column + column, std::min(kPairColumns, tile.columns - column), room);
  }
}

// A part of a tile: rows that pass by one panel of b, which stays in the first cache for a block of the contraction.
constexpr std::int64_t kPartRows = 9 * kPairRows;

class TileProduct {
 public:
  TileProduct(const TypedProduct& product, const Tile& tile, const Pairs& a, const TileScratch& scratch)
      : p_(product), tile_(tile), a_(a), scratch_(scratch), last_(tile.begin + tile.inner == product.k) {}

  void compute() const {
    for (std::int64_t row = 0; row < tile_.rows; row += kPartRows) {
      for (std::int64_t column = 0; column < tile_.columns; column += kPairColumns) {
        part(row, std::min(kPartRows, tile_.rows - row), column, std::min(kPairColumns, tile_.columns - column));
      }
    }
  }

 private:
  // Rows [row, row + rows) and columns [column, column + columns) of the tile.
  void part(std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns) const {
    alignas(64) float room[kPartRows * kPairColumns];
    const Sums sums = sums_of(row, column, room);
    constexpr std::int64_t kBlock = kGemmKBlock / 2;
    for (std::int64_t begin = 0; begin == 0 || begin < tile_.pairs(); begin += kBlock) {
      const std::uint16_t* first_a = a_.data + row / kPairRows * a_.panel + begin * a_.pair;
      const bool first_block = tile_.begin + begin == 0;
      const bool rounds = last_ && p_.c.is_narrow() && begin + kBlock >= tile_.pairs();
      const bool adds_to_rounded = first_block && p_.accumulate && p_.c.is_narrow();
      for (std::int64_t i = 0; i < rows; i += kPairRows) {
        const std::uint16_t* a = first_a + i / kPairRows * a_.panel;
        simd::pair_block({.a = a,
                          .a_row = a_.row,
                          .a_pair = a_.pair,
                          .b = scratch_.b + column / kPairColumns * b_panel_words(tile_.pairs()) + begin * kPairColumns,
                          .c = sums.data + i * sums.stride,
                          .c_stride = sums.stride,
                          .rows = std::min(kPairRows, rows - i),
                          .columns = columns,
                          .pairs = std::min(kBlock, tile_.pairs() - begin),
                          .add = first_block ? p_.accumulate && !adds_to_rounded : true,
                          .next_a = i + kPairRows < rows ? a + a_.panel : first_a + kBlock * a_.pair,
                          .rounded = rounds ? address_of(row + i, column) : nullptr,
                          .old = adds_to_rounded ? address_of(row + i, column) : nullptr,
                          .rounded_stride = p_.c.stride()});
      }
    }
  }

  struct Sums {
    float* data;
    std::int64_t stride;
  };

  std::uint16_t* address_of(std::int64_t row, std::int64_t column) const {
    return reinterpret_cast<std::uint16_t*>(p_.c.address(tile_.row + row, tile_.column + column));
  }

  // In c, if it is of F32; else in `room`, or, of several tiles of the contraction, in the scratch.
  Sums sums_of(std::int64_t row, std::int64_t column, float* room) const {
    if (!p_.c.is_narrow()) {
      return {p_.c.numbers<float>(tile_.row + row, tile_.column + column), p_.c.stride()};
    }
    if (tile_.inner == p_.k) return {room, kPairColumns};
    return {scratch_.sums + row * kPairTileColumns + column, kPairTileColumns};
  }

  const TypedProduct& p_;
  const Tile& tile_;
  const Pairs& a_;
  const TileScratch& scratch_;
  bool last_;
};

void multiply_share(const TypedProduct& p, const Share& share, const TileScratch& scratch) {
  // Of rows that are neither packed nor summed up in the scratch, all are one tile.
  const bool whole = lies_in_pairs(p) && p.k <= kLongestTile;
  const std::int64_t inner = whole ? std::max<std::int64_t>(p.k, 1) : kPairTileInner;
  const std::int64_t height = whole ? share.rows : even_part(share.rows, kPairTileRows, kPairRows);
  const std::int64_t most = kPairTileColumns * kPairTileInner / std::max(inner, kPairTileInner);
  const std::int64_t width = even_part(share.columns, most / kPairColumns * kPairColumns, kPairColumns);
  for (std::int64_t column = 0; column < share.columns; column += width) {
    for (std::int64_t row = 0; row < share.rows; row += height) {
      for (std::int64_t begin = 0; begin == 0 || begin < p.k; begin += inner) {
        const Tile tile{.row = share.row + row,
                        .rows = std::min(height, share.rows - row),
                        .column = share.column + column,
                        .columns = std::min(width, share.columns - column),
                        .begin = begin,
                        .inner = std::min(inner, p.k - begin)};
        if (row == 0 || p.k > inner) pack_b(p, tile, scratch.b);  // else it is there
        TileProduct(p, tile, pack_a(p, tile, scratch.a), scratch).compute();
      }
    }
  }
}

}  // namespace

void multiply_pairs(const TypedProduct& p, float* memory, Team& team) {
  if (p.k == 0 && p.accumulate) return;
  for_shares({p.m, p.n, p.transpose_a}, {kPairRows, kPairColumns}, team, [&](const Share& share, std::int64_t member) {
    multiply_share(p, share, TileScratch(memory + member * pair_scratch_elements()));
  });
}

}  // namespace trireme::kernels::cpu
