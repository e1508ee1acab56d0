#pragma once

// The layout: how one training run is cut over ranks. world = dp * tp * pp. Tensor parallelism varies fastest.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/collective_bytes.h"
#include "base/error.h"
#include "model/activations.h"
#include "model/config.h"

namespace trireme::plan {

enum class ScheduleKind { kGpipe, kOneFOneB, kInterleaved, kZeroBubbleH1 };
enum class AxisOrder { kTpPpDp, kTpDpPp };  // fastest first; the first keeps a pipeline inside few hosts
enum class ReduceWhen { kStep, kMicrobatch };
enum class Axis { kTensor, kPipeline, kData };

Result<ScheduleKind> parse_schedule(std::string_view text);  // "gpipe", "1f1b", "interleaved", "zb-h1"
std::string_view schedule_name(ScheduleKind kind);
Result<AxisOrder> parse_axis_order(std::string_view text);  // "tp-pp-dp", "tp-dp-pp"
std::string_view axis_order_name(AxisOrder order);
Result<ReduceWhen> parse_reduce(std::string_view text);  // "step", "microbatch"
std::string_view reduce_name(ReduceWhen reduce);
std::string_view axis_name(Axis axis);  // "tensor", "pipeline", "data"

struct Layout {
  int tp = 1;
  int pp = 1;
  int dp = 1;
  int interleave = 1;  // model chunks a stage; > 1 only with kInterleaved
  ScheduleKind schedule = ScheduleKind::kOneFOneB;
  int zero = 0;  // 0: nothing sharded; 1: moments (and master weights); 2: and gradients; 3: and weights
  model::Recompute recompute = model::Recompute::kNone;
  AxisOrder order = AxisOrder::kTpPpDp;
  bool sequence_parallel = false;
  ReduceWhen reduce = ReduceWhen::kStep;  // default_reduce(zero) where the user gave none
  int prefetch = 1;                       // ZeRO-3: units gathered ahead of their use
  std::int64_t bucket = 0;  // gradients, in elements, that are reduced together (plan/buckets.h); 0: a shard unit's
  bool overlap = true;      // reductions run while backward goes on; false: each is waited for at once
  // How the data axis is summed over. All but kOrdered are stable from run to run, but of the bits of kOrdered over two
  // replicas only.
  ReduceAlgorithm all_reduce = ReduceAlgorithm::kOrdered;
  std::vector<int> chunk_layers = {};  // decoder layers of each virtual stage in model order; empty: balanced_chunks()

  int world() const { return dp * tp * pp; }
  int chunks() const { return pp * interleave; }
  friend bool operator==(const Layout&, const Layout&) = default;
};
// Over several replicas: ranks keep shards of weights, and gather them (ZeRO 3).
inline bool shards_weights(const Layout& layout) { return layout.zero == 3 && layout.dp > 1; }
// Over several replicas: a micro-batch's gradients have buffers of their own, summed over ranks one by one.
inline bool opens_gradients(const Layout& layout) { return layout.dp > 1 && layout.reduce == ReduceWhen::kMicrobatch; }
ReduceWhen default_reduce(int zero);  // step for 0 and 1, microbatch for 2 and 3
// "dp 2 x tp 4 x pp 8, zero 1": for people.
std::string describe(const Layout& layout);

// The batch equation: global_batch = micro_batch * micro_batches * dp. Counts are sequences.
struct Batch {
  std::int64_t global_batch = 1;
  std::int64_t micro_batch = 1;
  std::int64_t sequence = 1;
  friend bool operator==(const Batch&, const Batch&) = default;
};
std::int64_t micro_batches(const Layout& layout, const Batch& batch);  // a rank, a step
std::int64_t tokens_per_step(const Batch& batch);

// Law 3: legal, or refused with the option, its value, the rule and the nearest legal values. Rules: every degree >= 1;
// tp divides heads, and divides or is divided by kv heads, divides ffn, is at most the vocabulary; sequence
// parallelism: tp divides the sequence, tp > 1; pp * interleave <= layers; interleave > 1 needs the interleaved
// schedule, pp > 1 and micro-batches divisible by pp; zero in 0..3; dp * micro_batch divides global_batch; a bucket
// size needs reduce = step; an all_reduce other than ordered needs dp > 1 and, where shards or every micro-batch are
// reduced (zero > 0, reduce = microbatch), is ring; sequence <= max_positions; chunk_layers: chunks() entries >= 1 that
// sum to the layers; no number above 2^24, nor the number of ranks, and at most 2^20 micro-batches a rank. At pp = 1 no
// schedule is refused: each keeps its order of work (gpipe all forwards first, zb-h1 split backwards), without
// transfers.
Status check_layout(const model::Config& config, const Layout& layout, const Batch& batch);

struct Coordinates {
  int tp = 0;
  int pp = 0;
  int dp = 0;
  friend bool operator==(const Coordinates&, const Coordinates&) = default;
};
Coordinates coordinates_of(const Layout& layout, int rank);
int rank_of(const Layout& layout, const Coordinates& coordinates);

// Ranks that differ in one coordinate only, ascending along it; `groups` lists all of an axis, `group_of` the one of a
// rank. Every rank is in exactly one group of each axis.
std::vector<std::vector<int>> process_groups(const Layout& layout, Axis axis);
std::vector<int> process_group_of(const Layout& layout, Axis axis, int rank);
// First and last stage's ranks of one pipeline (same tp and dp), where both hold the tied embedding: {first, last}.
// Empty at pp = 1 or where the model's embeddings are not tied.
std::vector<int> tied_group_of(const model::Config& config, const Layout& layout, int rank);
// Tensor ranks (as world ranks, ascending) that hold the same key/value heads as `rank`; {rank} where tp <= kv heads.
std::vector<int> kv_replica_group_of(const model::Config& config, const Layout& layout, int rank);

// A model chunk: units [first_unit, end_unit). Chunk c of stage s is virtual stage c * pp + s.
struct Chunk {
  int stage = 0;
  int chunk = 0;
  int first_unit = 0;
  int end_unit = 0;
};
// All chunks in model order (virtual stage order). The first holds the embedding, the last the head.
std::vector<Chunk> model_chunks(const model::Config& config, const Layout& layout);
// Decoder layers of each virtual stage: contiguous, each >= 1, the largest forward flops (embedding and head counted)
// as small as possible; below that as even as can be, the early chunks (most micro-batches in flight) the smaller ones.
std::vector<int> balanced_chunks(const model::Config& config, int chunks, std::int64_t sequence);

// How many of everything a rank holds.
model::LocalWidths local_widths(const model::Config& config, const Layout& layout, const Batch& batch);

}  // namespace trireme::plan
