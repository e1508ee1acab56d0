#include "base/check.h"
#include "engine/kernels/cpu/pair_block.h"

#if defined(__x86_64__)
#include <immintrin.h>
// GCC 12 takes the undefined operands inside of some intrinsics for a mistake.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

namespace trireme::kernels::simd {

#if defined(__x86_64__)
namespace {

#define TRIREME_PAIRS __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,prfchw")))

TRIREME_PAIRS inline __mmask16 first_lanes(std::int64_t count) {
  return static_cast<__mmask16>(count >= 16 ? 0xffffU : count <= 0 ? 0U : (1U << count) - 1);
}

// Rounds as simd::narrow does without the instruction, which takes subnormal numbers for zeros: then by additions.
TRIREME_PAIRS inline __m256i to_bf16(__m512 x) {
  constexpr int kSubnormal = 0x20;
  if (__builtin_expect(_mm512_fpclass_ps_mask(x, kSubnormal), 0) == 0) {
    return reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x));
  }
  const __m512i bits = _mm512_castps_si512(x);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  const __m512i kept = _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x400000));
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(kept, 16));
}

// 16 columns of row i, from `column` on.
TRIREME_PAIRS inline void put(const PairBlock& work, __m512 sum, std::int64_t i, std::int64_t column) {
  const __mmask16 lanes = first_lanes(work.columns - column);
  float* c = work.c + i * work.c_stride + column;
  if (work.add) sum = _mm512_add_ps(_mm512_maskz_loadu_ps(lanes, c), sum);
  if (work.old != nullptr) {
    const __m256i old = _mm256_maskz_loadu_epi16(lanes, work.old + i * work.rounded_stride + column);
    sum = _mm512_add_ps(_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(old), 16)), sum);
  }
  _mm512_mask_storeu_ps(c, lanes, sum);
  if (work.rounded == nullptr) return;
  _mm256_mask_storeu_epi16(work.rounded + i * work.rounded_stride + column, lanes, to_bf16(sum));
}

// kRows rows of sums in registers. Rows a_row and pairs a_pair numbers apart.
template <int kRows, bool kPanel>
TRIREME_PAIRS void rows_of_block(const PairBlock& work) {
  const std::int64_t a_row = kPanel ? 2 : work.a_row;
  constexpr std::int64_t kPair = kPanel ? 2 * kPairRows : 2;
  __m512 sums[kRows][2];
  for (int i = 0; i < kRows; ++i) sums[i][0] = sums[i][1] = _mm512_setzero_ps();
  const std::uint16_t* a = work.a;
  const std::uint32_t* b = work.b;
  const std::uint16_t* next = work.next_a != nullptr ? work.next_a : work.a;
  if (const std::uint16_t* result = work.rounded != nullptr ? work.rounded : work.old; result != nullptr) {
    for (int i = 0; i < kRows; ++i) {
      __builtin_prefetch(result + i * work.rounded_stride, 1);
      __builtin_prefetch(result + i * work.rounded_stride + work.columns - 1, 1);  // in the line behind it, perhaps
    }
  }
  for (std::int64_t p = 0; p < work.pairs; ++p, a += kPair, b += kPairColumns) {
    // A line of 16 pairs of a row, or of a pair and a little more of a panel.
    _mm_prefetch(kPanel ? next + p * kPair : next + p / 8 * a_row + p % 8 * 32, _MM_HINT_T0);
    const auto b0 = reinterpret_cast<__m512bh>(_mm512_loadu_si512(b));
    const auto b1 = reinterpret_cast<__m512bh>(_mm512_loadu_si512(b + 16));
#pragma GCC unroll 14
    for (int i = 0; i < kRows; ++i) {
      int word;
      __builtin_memcpy(&word, a + i * a_row, sizeof(word));
      const auto factor = reinterpret_cast<__m512bh>(_mm512_set1_epi32(word));
      sums[i][0] = _mm512_dpbf16_ps(sums[i][0], factor, b0);
      sums[i][1] = _mm512_dpbf16_ps(sums[i][1], factor, b1);
    }
  }
#pragma GCC unroll 14
  for (int i = 0; i < kRows; ++i) {
    put(work, sums[i][0], i, 0);
    if (work.columns > 16) put(work, sums[i][1], i, 16);
  }
}

template <int kRows>
void by_rows(const PairBlock& work) {
  if (work.rows != kRows) {
    if constexpr (kRows > 1) by_rows<kRows - 1>(work);
  } else if (work.a_pair == 2) {
    rows_of_block<kRows, false>(work);
  } else {
    rows_of_block<kRows, true>(work);
  }
}

// 16 rows of 16 words become 16 columns.
TRIREME_PAIRS inline void transpose(const __m512i (&row)[16], std::uint32_t* to, std::int64_t count) {
  __m512i pair[16], four[16];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    pair[2 * i] = _mm512_unpacklo_epi32(row[2 * i], row[2 * i + 1]);
    pair[2 * i + 1] = _mm512_unpackhi_epi32(row[2 * i], row[2 * i + 1]);
  }
  // four[4 i + j]: in its quarter q column 4 q + j of rows 4 i to 4 i + 3.
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    four[4 * i] = _mm512_unpacklo_epi64(pair[4 * i], pair[4 * i + 2]);
    four[4 * i + 1] = _mm512_unpackhi_epi64(pair[4 * i], pair[4 * i + 2]);
    four[4 * i + 2] = _mm512_unpacklo_epi64(pair[4 * i + 1], pair[4 * i + 3]);
    four[4 * i + 3] = _mm512_unpackhi_epi64(pair[4 * i + 1], pair[4 * i + 3]);
  }
  constexpr int kEven = 0x88, kOdd = 0xdd;  // quarters 0 and 2, 1 and 3 of each
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const __m512i even0 = _mm512_shuffle_i32x4(four[j], four[4 + j], kEven);
    const __m512i even1 = _mm512_shuffle_i32x4(four[8 + j], four[12 + j], kEven);
    const __m512i odd0 = _mm512_shuffle_i32x4(four[j], four[4 + j], kOdd);
    const __m512i odd1 = _mm512_shuffle_i32x4(four[8 + j], four[12 + j], kOdd);
    if (j < count) _mm512_storeu_si512(to + j * kPairColumns, _mm512_shuffle_i32x4(even0, even1, kEven));
    if (4 + j < count) _mm512_storeu_si512(to + (4 + j) * kPairColumns, _mm512_shuffle_i32x4(odd0, odd1, kEven));
    if (8 + j < count) _mm512_storeu_si512(to + (8 + j) * kPairColumns, _mm512_shuffle_i32x4(even0, even1, kOdd));
    if (12 + j < count) _mm512_storeu_si512(to + (12 + j) * kPairColumns, _mm512_shuffle_i32x4(odd0, odd1, kOdd));
  }
}

}  // namespace

bool has_pair_instruction() {
  static const bool has = __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return has;
}

void pair_block_by_instruction(const PairBlock& block) { by_rows<kPairRows>(block); }

TRIREME_PAIRS void narrow_by_instruction(const float* from, std::uint16_t* to, std::int64_t n) {
  constexpr std::int64_t kLanes = 16;
  for (std::int64_t i = 0; i < n; i += kLanes) {
    const __mmask16 lanes = first_lanes(n - i);
    _mm256_mask_storeu_epi16(to + i, lanes, to_bf16(_mm512_maskz_loadu_ps(lanes, from + i)));
  }
}

TRIREME_PAIRS void transpose_pairs_by_instruction(const std::uint16_t* from, std::int64_t stride, std::int64_t rows,
                                                  std::int64_t numbers, std::uint32_t* to) {
  constexpr std::int64_t kWords = 16;
  for (std::int64_t half = 0; half < kPairColumns; half += kWords) {
    for (std::int64_t number = 0; number < numbers; number += 2 * kWords) {
      const std::int64_t left = numbers - number;
      const __mmask32 lanes = left >= 32 ? ~0U : (1U << left) - 1;
      __m512i row[16];
      for (int i = 0; i < 16; ++i) {
        row[i] = half + i < rows ? _mm512_maskz_loadu_epi16(lanes, from + (half + i) * stride + number)
                                 : _mm512_setzero_si512();
      }
      transpose(row, to + number / 2 * kPairColumns + half, (left + 1) / 2);
    }
  }
}

#else

bool has_pair_instruction() { return false; }
void pair_block_by_instruction(const PairBlock&) { TRIREME_CHECK(false, "no such instruction here"); }
void narrow_by_instruction(const float*, std::uint16_t*, std::int64_t) {
  TRIREME_CHECK(false, "no such instruction here");
}
void transpose_pairs_by_instruction(const std::uint16_t*, std::int64_t, std::int64_t, std::int64_t, std::uint32_t*) {
  TRIREME_CHECK(false, "no such instruction here");
}

#endif

}  // namespace trireme::kernels::simd
