#pragma once

// The vector loops of the CPU kernels, over plain arrays of n floats, for the best instruction set that the CPU has.
// No threads, no checks. An output may be one of the inputs; otherwise arrays do not overlap. A pointer said to be
// optional may be null. Elements see the same operations wherever they stand; sums have an order that depends on n
// alone.

#include <cstdint>

#include "engine/kernels/kernels.h"

namespace trireme::kernels::simd {

// A number of BF16. Loops over these widen them as they are read and round what they write, as widen() and narrow() do.
struct BFloat {
  std::uint16_t bits;
};

// BF16 or F16 to float, and back, rounded to the nearest, ties to even.
void widen(DType dtype, const std::uint16_t* from, float* to, std::int64_t n);
void narrow(DType dtype, const float* from, std::uint16_t* to, std::int64_t n);

// The name of that instruction set, e.g. "AVX3".
const char* instruction_set();

// y += x.
void add(float* y, const float* x, std::int64_t n);
void add(BFloat* y, const float* x, std::int64_t n);
// x *= factor.
void scale(float* x, float factor, std::int64_t n);
// out = residual + f(x + bias). bias optional. factors optional: f multiplies by them, and where one is 0 the result
// is 0 whatever x is.
void residual_add(float* out, const float* residual, const float* x, const float* bias, const float* factors,
                  std::int64_t n);
// out = x * factors, 0 where a factor is 0.
void apply_factors(float* out, const float* x, const float* factors, std::int64_t n);
// (first, second) = (first c - second s, second c + first s), s negated if inverse.
void rotate(float* first, float* second, const float* cosines, const float* sines, bool inverse, std::int64_t n);
// total += the sums of the columns of x [rows, n]: chains of kChainRows, added in ascending order.
inline constexpr std::int64_t kChainRows = 64;
inline constexpr std::int64_t kMaxStripColumns = 2048;  // most that n may be in strip sums
void strip_sum(float* total, const float* x, std::int64_t stride, std::int64_t rows, std::int64_t n);
void strip_sum(float* total, const BFloat* x, std::int64_t stride, std::int64_t rows, std::int64_t n);

// Rows of `row` elements, the next one `stride` further on, to one place one after the other. Written past the caches:
// for what is read again much later, or by another core.
void copy_rows_past_cache(float* to, const float* from, std::int64_t row, std::int64_t rows, std::int64_t stride);

// gate optional.
void activation_forward(ActivationType type, const float* gate, const float* up, float* out, std::int64_t n);
void activation_forward(ActivationType type, const BFloat* gate, const BFloat* up, BFloat* out, std::int64_t n);
// gate and d_gate optional, together.
void activation_backward(ActivationType type, const float* d_out, const float* gate, const float* up, float* d_gate,
                         float* d_up, std::int64_t n);
void activation_backward(ActivationType type, const BFloat* d_out, const BFloat* gate, const BFloat* up, BFloat* d_gate,
                         BFloat* d_up, std::int64_t n);

float sum(const float* x, std::int64_t n);
// Sum of (x - center)^2.
float square_deviation(const float* x, float center, std::int64_t n);
float dot(const float* x, const float* y, std::int64_t n);

// What a norm keeps of a row.
struct RowStats {
  float mean = 0;
  float inverse_deviation = 0;
};
// y = (x - mean) inverse_deviation weight + bias. bias optional.
void norm_apply(const float* x, RowStats stats, const float* weight, const float* bias, float* y, std::int64_t n);
// With g = d_y weight and z the normalised x: the sum of g z.
float norm_dot(const float* d_y, const float* x, RowStats stats, const float* weight, std::int64_t n);
// d_x = addend + inverse_deviation (g - mean_gradient - z mean_product). addend optional.
void norm_backward_apply(const float* d_y, const float* x, RowStats stats, const float* weight, float mean_gradient,
                         float mean_product, const float* addend, float* d_x, std::int64_t n);
// As strip_sum, of d_y z. `stats` of consecutive rows are stats_stride elements apart: mean, inverse deviation.
void strip_sum_normalised(float* total, const float* d_y, std::int64_t d_y_stride, const float* x,
                          std::int64_t x_stride, const float* stats, std::int64_t stats_stride, std::int64_t rows,
                          std::int64_t n);
void strip_sum_normalised(float* total, const BFloat* d_y, std::int64_t d_y_stride, const BFloat* x,
                          std::int64_t x_stride, const float* stats, std::int64_t stats_stride, std::int64_t rows,
                          std::int64_t n);

// The largest scale * x; -infinity where n = 0.
float scaled_maximum(const float* x, float scale, std::int64_t n);
// The sum of exp(x - maximum).
float exponential_sum(const float* x, float maximum, std::int64_t n);
// x = exp(scale x - maximum); returns the sum.
float exponentials(float* x, float scale, float maximum, std::int64_t n);
// x = exp(x - maximum) * factor, and (exp(x - maximum) / sum - 1) * scale at `target` (none if outside [0, n)), where
// factor = scale / sum.
void softmax_gradient(float* x, float maximum, float sum, float scale, std::int64_t target, std::int64_t n);
// A row of attention's backward. On entry: scores q k, and products d_out v. With p = exp(scale scores - log_sum_exp):
// scores = p factors, products = p (factors products - row_dot) scale. factors optional (1).
void attention_gradient(float* scores, float* products, float scale, float log_sum_exp, float row_dot,
                        const float* factors, std::int64_t n);

// One step (kernels.h) on n elements.
void adamw(const AdamW& step, float* weights, const float* gradients, float* first_moment, float* second_moment,
           std::int64_t n);
// The sum of squares of up to 256 elements in double: eight chains, as Kernels::square_blocks says.
double square_block(const float* x, std::int64_t n);

// A block of a product (kernels.h): c = or += a b, each element a chain of fused multiply-adds over ascending inner
// from zero. Element (i, k) of a is a[i * a_row + k * a_column], (k, j) of b is b[k * b_row + j * b_column].
struct BlockProduct {
  const float* a = nullptr;
  std::int64_t a_row = 0;
  std::int64_t a_column = 0;
  const float* b = nullptr;
  std::int64_t b_row = 0;
  std::int64_t b_column = 0;
  float* c = nullptr;
  std::int64_t c_stride = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;  // at most kPanelColumns
  std::int64_t inner = 0;    // at most kGemmKBlock
  bool add = false;
};
inline constexpr std::int64_t kPanelColumns = 32;
void block_product(const BlockProduct& work);

// The same for kPanelColumns columns whose rows of b lie side by side: c [rows, kPanelColumns]; b_row apart.
struct PanelProduct {
  const float* a = nullptr;
  std::int64_t a_row = 0;
  std::int64_t a_column = 0;
  const float* b = nullptr;
  std::int64_t b_row = 0;
  float* c = nullptr;
  std::int64_t c_stride = 0;
  std::int64_t rows = 0;
  std::int64_t inner = 0;
  bool add = false;
};
void panel_product(const PanelProduct& work);

}  // namespace trireme::kernels::simd
