#pragma once

// Matrix products by oneDNN, with the bits that kernels.h defines: cut into blocks of kGemmKBlock here, since the
// library's own cut depends on shape, threads and strides.

#include <cstdint>

#include "engine/kernels/cpu/typed_rows.h"

namespace trireme::kernels::cpu {

// c [m, n] = or += op(a) op(b); contraction of length k. Row-major with leading dimensions; transposed operands are
// stored [k, m] and [n, k].
struct Product {
  const float* a = nullptr;
  std::int64_t a_stride = 0;
  bool transpose_a = false;
  const float* b = nullptr;
  std::int64_t b_stride = 0;
  bool transpose_b = false;
  float* c = nullptr;
  std::int64_t c_stride = 0;
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  bool accumulate = false;
};
void multiply(const Product& product, Team& team);

// The same of operands of which some are narrow. scratch: narrow_scratch_elements(team.size()) floats.
struct TypedProduct {
  InRows a;
  bool transpose_a = false;
  InRows b;
  bool transpose_b = false;
  OutRows c;
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  bool accumulate = false;
};
void multiply(const TypedProduct& product, float* scratch, Team& team);

// Such products of which an operand is BF16, by pairs (pair_block.h).
void multiply_pairs(const TypedProduct& product, float* scratch, Team& team);

}  // namespace trireme::kernels::cpu
