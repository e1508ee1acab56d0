#pragma once

// The operations that a backend provides. One abstract class, one implementation a folder: reference/ (plain loops,
// the oracle of all others), cpu/ (oneDNN and SIMD), fake/ (an asynchronous device for tests, on the reference loops),
// later cuda/.
//
// Types. Numbers are kept in F32 or in a narrow type, BF16 or F16, and the operands of one call may differ: all but
// what is said to be F32. Arithmetic is in F32: narrow operands are widened (which is exact), and each element of a
// narrow result is rounded once, to the nearest, ties to even, at the very end of the call, however many terms it sums.
// So the bits of a call on narrow operands are those of the same call on their F32 values, rounded; but for products of
// BF16 (Gemm). The reference also computes in F64, all operands alike.
//
// Rules for all of them
//  * Views may be of device memory: nothing here is read on the host. Calls may return before the work is done; work
//    runs in order of the calls; Device::synchronize() waits.
//  * Shapes are checked (InternalError). Outputs must not overlap inputs unless said.
//  * The result is a function of shapes and values alone: never of the number of threads, of alignment, or of the
//    position of a row or column inside a larger tensor. Every element of an elementwise kernel sees the same
//    operations whatever its offset (masked tails, no contraction). Sums have a fixed order.
//  * T is the number of tokens (rows), `sequence` the tokens of one sequence; row t is position t % sequence of
//    sequence t / sequence.

#include <cstdint>
#include <span>

#include "engine/kernels/tensor.h"

namespace trireme::kernels {

// c = op(a) op(b), or c += it. op is transposition. The bits are defined, so that no library's blocking, thread count
// or shard changes them (docs/decisions/0002-gemm-k-blocks.md): the contraction is cut into blocks of kGemmKBlock, the
// last one shorter. The sum of a block is a chain from zero over ascending k, sum = fma(a, b, sum). c starts as the
// sum of the first block (with accumulate: c + that sum); the sums of the other blocks are added to c in ascending
// order. A contraction of length 0 gives zero (with accumulate: c).
// Of BF16, if a or b is: an F32 operand beside it is rounded to BF16 as it is read (F16 may not be there), and a
// block's chain takes two terms at a time, the later one first: sum = fma(a[k + 1], b[k + 1], sum), then
// sum = fma(a[k], b[k], sum), k even, counted from the block's begin, with zeros behind an odd end; subnormal operands,
// sums and results of the chain are zeros (flushed.h). That is what VDPBF16PS does
// (docs/decisions/0012-products-of-bf16-take-pairs.md).
inline constexpr std::int64_t kGemmKBlock = 256;
struct Gemm {
  ConstTensorView a;
  bool transpose_a = false;
  ConstTensorView b;
  bool transpose_b = false;
  TensorView c;
  bool accumulate = false;
};

// The target of a token that bears no loss.
inline constexpr std::int32_t kIgnoredTarget = -1;

// kRmsNormOffset: an RMS norm whose weight holds the difference from one.
enum class NormType { kLayerNorm, kRmsNorm, kRmsNormOffset };
enum class ActivationType { kGeluTanh, kSilu, kRelu };

// Dropout by counter: element (sequence i, position p, column j) is kept iff
// random_uniform({seed, streams[i]}, p * columns_total + column_begin + j) >= probability, and scaled by
// 1 / (1 - probability). probability = 0: the identity; streams may then be empty. A tensor may be one of the
// equal parts of the micro-batch's rows, from row_begin on; it may begin and end inside a sequence.
struct Dropout {
  double probability = 0.0;
  std::uint64_t seed = 0;
  std::span<const std::uint64_t> streams;  // one a sequence of the micro-batch; host memory, copied by the call
  std::int64_t sequence = 0;
  std::int64_t columns_total = 0;
  std::int64_t column_begin = 0;
  std::int64_t row_begin = 0;
};

// Causal self-attention with shared key/value heads: query i sees keys j, i - window < j <= i. q: [T, heads d],
// k, v: [T, kv_heads d]; strided rows allowed (parts of a fused projection). out: [T, heads d]; log_sum_exp:
// [sequences heads, sequence]. A window of the whole sequence or more has the bits of none.
// Where q, k, v and d_out are BF16 its products are those of BF16 (Gemm): probabilities, times dropout, and the
// gradients of scores are rounded to BF16 for the products that read them. Else all is in F32.
// Probability dropout: element ((head_begin + head) * sequence + query) * sequence + key of the sequence's stream.
struct AttentionShape {
  std::int64_t sequences = 0;
  std::int64_t sequence = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  double scale = 1.0;           // of the scores; 1 / sqrt(head_dim)
  std::int64_t window = 0;      // positions that a query attends to, itself included; 0: all before it
  std::int64_t head_begin = 0;  // global index of the first local query head
  Dropout dropout;              // probability, seed, streams used
};
struct AttentionForward {
  AttentionShape shape;
  ConstTensorView q, k, v;
  TensorView out, log_sum_exp;  // the second F32
  TensorView scratch;           // F32: threads * attention_forward_scratch() elements (base/attention_tile.h)
};
struct AttentionBackward {
  AttentionShape shape;
  ConstTensorView q, k, v, out, log_sum_exp, d_out;
  TensorView d_q, d_k, d_v;
  TensorView scratch;  // F32: threads * attention_backward_scratch() elements
};

struct AdamW {
  double learning_rate = 0.0;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.0;      // decoupled: w -= learning_rate * weight_decay * w
  double bias_correction1 = 1.0;  // 1 - beta1^step
  double bias_correction2 = 1.0;
  double gradient_scale = 1.0;  // the clip factor, applied as the gradient is read
};

class Kernels {
 public:
  virtual ~Kernels() = default;

  virtual int threads() const = 0;
  // F32 memory for all later calls: narrow_scratch_elements(threads()) (base/narrow_scratch.h) of it before the first
  // call with a narrow operand, on a backend that needs it. Outlives them.
  virtual void use_scratch(TensorView) {}

  virtual void gemm(const Gemm& gemm) = 0;

  // x[t, j] += bias[j].
  virtual void add_bias(TensorView x, ConstTensorView bias) = 0;
  // out[j] (+)= sum over rows of x[t, j]: chains of 64 rows, chains added in ascending order.
  virtual void column_sum(ConstTensorView x, TensorView out, bool accumulate) = 0;
  // out = residual + dropout(x + bias); bias may be empty; out may be x or residual.
  virtual void residual_add(TensorView out, ConstTensorView residual, ConstTensorView x, ConstTensorView bias,
                            const Dropout& dropout) = 0;
  // out = mask * x / (1 - p): dropout forward, and its backward; out may be x.
  virtual void apply_dropout(TensorView out, ConstTensorView x, const Dropout& dropout) = 0;

  // out[t] = table[ids[t] - row_begin] where that row is in the table, else zero (another rank's row).
  virtual void embedding_forward(std::span<const std::int32_t> ids, ConstTensorView table, std::int64_t row_begin,
                                 TensorView out) = 0;
  // d_table[ids[t] - row_begin] += d_out[t], tokens ascending; zeroed first unless accumulate.
  virtual void embedding_backward(std::span<const std::int32_t> ids, ConstTensorView d_out, std::int64_t row_begin,
                                  TensorView d_table, bool accumulate) = 0;
  // out[t] += table[t % sequence].
  virtual void position_forward(ConstTensorView table, std::int64_t sequence, TensorView out) = 0;
  // d_table[p] (+)= sum over sequences, ascending, of d_out[i * sequence + p]; rows >= sequence get zero.
  virtual void position_backward(ConstTensorView d_out, std::int64_t sequence, TensorView d_table, bool accumulate) = 0;

  // y = (x - mean) * r * weight + bias; x * r * weight (kRmsNorm); x * r * (1 + weight), the sum rounded first
  // (kRmsNormOffset). RMS norms have no bias: it is empty. stats[t] = {mean, r}, RMS {0, r}; F32.
  virtual void norm_forward(NormType type, ConstTensorView x, ConstTensorView weight, ConstTensorView bias,
                            double epsilon, TensorView y, TensorView stats) = 0;
  // y again from x and stats: the same bits as norm_forward gave.
  virtual void norm_apply(NormType type, ConstTensorView x, ConstTensorView stats, ConstTensorView weight,
                          ConstTensorView bias, TensorView y) = 0;
  // d_x = addend + the norm's input gradient; addend may be empty; d_x may be addend.
  virtual void norm_backward_input(NormType type, ConstTensorView d_y, ConstTensorView x, ConstTensorView stats,
                                   ConstTensorView weight, ConstTensorView addend, TensorView d_x) = 0;
  // d_weight (+)= sum over rows of d_y * normalised x; d_bias (+)= sum over rows of d_y (bias empty for RMS). Order as
  // column_sum.
  virtual void norm_backward_weight(NormType type, ConstTensorView d_y, ConstTensorView x, ConstTensorView stats,
                                    TensorView d_weight, TensorView d_bias, bool accumulate) = 0;

  // kRmsNorm of rows that are cut over tensor-parallel ranks, in steps between which these add up `sums` and `dots`
  // ([1, T], F32). x, d_y, weight, addend and d_x have this rank's columns, columns_total counts those of all ranks.
  // norm_apply gives y from stats, norm_backward_weight the gradient of the weight. Where one rank has all columns the
  // bits are those of norm_forward and norm_backward_input.
  // sums[t] = sum over columns of x^2.
  virtual void row_square_sums(ConstTensorView x, TensorView sums) = 0;
  // stats[t] = {0, 1 / sqrt(sums[t] / columns_total + epsilon)}.
  virtual void stats_of_square_sums(ConstTensorView sums, std::int64_t columns_total, double epsilon,
                                    TensorView stats) = 0;
  // dots[t] = sum over columns of d_y * weight * normalised x.
  virtual void norm_row_dots(ConstTensorView d_y, ConstTensorView x, ConstTensorView stats, ConstTensorView weight,
                             TensorView dots) = 0;
  // d_x = addend + the norm's input gradient; addend may be empty; d_x may be addend.
  virtual void norm_backward_input_of_dots(ConstTensorView d_y, ConstTensorView x, ConstTensorView stats,
                                           ConstTensorView weight, ConstTensorView dots, std::int64_t columns_total,
                                           ConstTensorView addend, TensorView d_x) = 0;

  // Turns pairs (j, j + d/2) of every head by the angle of the row's position; in place. table: [sequence, head_dim]:
  // d/2 cosines, then d/2 sines, F32. inverse turns back (the backward).
  virtual void rotary(TensorView x, std::int64_t heads, std::int64_t head_dim, ConstTensorView table,
                      std::int64_t sequence, bool inverse) = 0;

  virtual void attention_forward(const AttentionForward& work) = 0;
  virtual void attention_backward(const AttentionBackward& work) = 0;

  // out = act(up), or act(gate) * up where gate is not empty.
  virtual void activation_forward(ActivationType type, ConstTensorView gate, ConstTensorView up, TensorView out) = 0;
  // Gradients of up, and of gate where given; d_up may be d_out.
  virtual void activation_backward(ActivationType type, ConstTensorView d_out, ConstTensorView gate, ConstTensorView up,
                                   TensorView d_gate, TensorView d_up) = 0;

  // Cross-entropy over a block of rows of this rank's vocabulary columns [vocabulary_begin, + logits.columns), in
  // steps between which tensor-parallel ranks combine row_max (max) and then row_sum and target_logit (sum). A row
  // whose target is kIgnoredTarget bears no loss: its loss and its gradient are zero, whatever its logits. All F32.
  virtual void row_maximum(ConstTensorView logits, TensorView row_max) = 0;
  // row_sum = sum of exp(logit - row_max); target_logit = the target's logit if its column is here, else 0.
  virtual void softmax_sum(ConstTensorView logits, ConstTensorView row_max, std::span<const std::int32_t> targets,
                           std::int64_t vocabulary_begin, TensorView row_sum, TensorView target_logit) = 0;
  // loss[t] = log(row_sum) + row_max - target_logit.
  virtual void cross_entropy_loss(ConstTensorView row_max, ConstTensorView row_sum, ConstTensorView target_logit,
                                  std::span<const std::int32_t> targets, TensorView loss) = 0;
  // logits := (softmax - onehot(target)) * scale, in place.
  virtual void cross_entropy_backward(TensorView logits, ConstTensorView row_max, ConstTensorView row_sum,
                                      std::span<const std::int32_t> targets, std::int64_t vocabulary_begin,
                                      double scale) = 0;

  // One step of AdamW on a flat part; all of equal length. Weights and moments are F32. rounded: the new weights in a
  // narrow type (weights are then the master weights), or empty.
  virtual void adamw(const AdamW& step, TensorView weights, ConstTensorView gradients, TensorView first_moment,
                     TensorView second_moment, TensorView rounded) = 0;
  // blocks[i] (F64) = sum of squares of x[256 i, 256 (i+1)): exact products in double, eight interleaved chains
  // (element e goes to chain e % 8), chains added as ((0+1)+(2+3))+((4+5)+(6+7)).
  virtual void square_blocks(ConstTensorView x, TensorView blocks) = 0;

  virtual void fill(TensorView x, double value) = 0;
  virtual void copy(ConstTensorView from, TensorView to) = 0;  // rows may be strided
  virtual void add(TensorView y, ConstTensorView x) = 0;       // y += x
  virtual void scale(TensorView x, double factor) = 0;         // x *= factor
};

}  // namespace trireme::kernels
