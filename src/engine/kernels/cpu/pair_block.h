#pragma once

// Blocks of products of BF16 numbers, as kernels.h defines their sums: chains over pairs of the contraction. A pair is
// a word of two numbers, that of the lower index in its lower half; where the contraction is odd, the last pair's other
// number is zero. By VDPBF16PS where the CPU has it, else by fused multiply-adds that give the same bits.

#include <cstdint>

namespace trireme::kernels::simd {

inline constexpr std::int64_t kPairRows = 14;     // of a at a time: 14 x 32 sums are 28 of 32 vector registers
inline constexpr std::int64_t kPairColumns = 32;  // of a panel of b
inline constexpr std::int64_t kPairRoom = 16;     // words that are written at a time for a pair of a panel of a

// c [rows, columns] = or += a b, or = old + a b. Row i of a has its pair p at a + i * a_row + p * a_pair, in words that
// need no alignment: where numbers lie anyway, or in panels. b is one panel: pair p of its columns at
// b + p * kPairColumns.
struct PairBlock {
  const std::uint16_t* a = nullptr;
  std::int64_t a_row = 0;   // distances in numbers
  std::int64_t a_pair = 0;  // 2: rows lie as they are; else 2 * kPairRows, with a_row = 2
  const std::uint32_t* b = nullptr;
  float* c = nullptr;
  std::int64_t c_stride = 0;
  std::int64_t rows = 0;     // at most kPairRows
  std::int64_t columns = 0;  // at most kPairColumns
  std::int64_t pairs = 0;    // of one block of the contraction
  bool add = false;
  const std::uint16_t* next_a = nullptr;  // that of the block that will be computed next, or null: fetched ahead
  std::uint16_t* rounded = nullptr;       // where c goes as BF16 as well, or null
  const std::uint16_t* old = nullptr;     // BF16 that a b is added to, in c's stead, or null; then `add` is false
  std::int64_t rounded_stride = 0;        // of both
};
void pair_block(const PairBlock& block);

// Words of two rows of `columns` numbers, in panels of `width` columns, the words of a panel panel_stride behind those
// of the one before. `room` words are written in each, at least width and at most kPairColumns: behind its own those of
// the columns that follow, if there are any, else zeros. second: null for zeros.
struct PanelShape {
  std::int64_t columns = 0, width = 0, room = 0, panel_stride = 0;
};
void interleave(const std::uint16_t* first, const std::uint16_t* second, const PanelShape& shape, std::uint32_t* to);
// Rows [rows, numbers] to words [(numbers + 1) / 2, kPairColumns]: a row becomes a column, rows up to kPairColumns and
// the number behind an odd last one are zeros.
void transpose_pairs(const std::uint16_t* from, std::int64_t stride, std::int64_t rows, std::int64_t numbers,
                     std::uint32_t* to);

// The two ways in which these are done. The first where the CPU has the instruction only.
bool has_pair_instruction();
void pair_block_by_instruction(const PairBlock& block);
void narrow_by_instruction(const float* from, std::uint16_t* to, std::int64_t n);  // simd::narrow to BF16
void transpose_pairs_by_instruction(const std::uint16_t* from, std::int64_t stride, std::int64_t rows,
                                    std::int64_t numbers, std::uint32_t* to);
void pair_block_by_multiply_add(const PairBlock& block);
void transpose_pairs_by_words(const std::uint16_t* from, std::int64_t stride, std::int64_t rows, std::int64_t numbers,
                              std::uint32_t* to);

}  // namespace trireme::kernels::simd
