#include "plan/layout.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/check.h"
#include "plan/layout_rules.h"

namespace trireme::plan {
namespace {

template <class T>
struct Word {
  T value;
  std::string_view name;
};
constexpr Word<ScheduleKind> kSchedules[] = {{ScheduleKind::kGpipe, "gpipe"},
                                             {ScheduleKind::kOneFOneB, "1f1b"},
                                             {ScheduleKind::kInterleaved, "interleaved"},
                                             {ScheduleKind::kZeroBubbleH1, "zb-h1"}};
constexpr Word<AxisOrder> kOrders[] = {{AxisOrder::kTpPpDp, "tp-pp-dp"}, {AxisOrder::kTpDpPp, "tp-dp-pp"}};
constexpr Word<ReduceWhen> kReduces[] = {{ReduceWhen::kStep, "step"}, {ReduceWhen::kMicrobatch, "microbatch"}};

template <class T, std::size_t N>
Result<T> parse_word(const Word<T> (&words)[N], std::string_view option, std::string_view text) {
  std::string known;
  for (const Word<T>& word : words) {
    if (word.name == text) return word.value;
    known += (known.empty() ? "" : ", ") + std::string(word.name);
  }
  return Failure{.option = std::string(option), .value = std::string(text), .rule = "is not known", .nearest = known};
}

template <class T, std::size_t N>
std::string_view word_of(const Word<T> (&words)[N], T value) {
  for (const Word<T>& word : words) {
    if (word.value == value) return word.name;
  }
  TRIREME_CHECK(false, "no word for {}", static_cast<int>(value));
}

// Strides of the coordinates in a rank number.
struct Strides {
  int pp;
  int dp;
};
Strides strides_of(const Layout& layout) {
  if (layout.order == AxisOrder::kTpPpDp) return {.pp = layout.tp, .dp = layout.tp * layout.pp};
  return {.pp = layout.tp * layout.dp, .dp = layout.tp};
}

int& coordinate(Coordinates& coordinates, Axis axis) {
  switch (axis) {
    case Axis::kTensor:
      return coordinates.tp;
    case Axis::kPipeline:
      return coordinates.pp;
    case Axis::kData:
      return coordinates.dp;
  }
  TRIREME_CHECK(false, "axis {}", static_cast<int>(axis));
}

int degree(const Layout& layout, Axis axis) {
  return axis == Axis::kTensor ? layout.tp : axis == Axis::kPipeline ? layout.pp : layout.dp;
}

}  // namespace

Result<ScheduleKind> parse_schedule(std::string_view text) { return parse_word(kSchedules, "layout.schedule", text); }
std::string_view schedule_name(ScheduleKind kind) { return word_of(kSchedules, kind); }
Result<AxisOrder> parse_axis_order(std::string_view text) { return parse_word(kOrders, "layout.order", text); }
std::string_view axis_order_name(AxisOrder order) { return word_of(kOrders, order); }
Result<ReduceWhen> parse_reduce(std::string_view text) { return parse_word(kReduces, "layout.reduce", text); }
std::string_view reduce_name(ReduceWhen reduce) { return word_of(kReduces, reduce); }

std::string_view axis_name(Axis axis) {
  return axis == Axis::kTensor ? "tensor" : axis == Axis::kPipeline ? "pipeline" : "data";
}

ReduceWhen default_reduce(int zero) { return zero >= 2 ? ReduceWhen::kMicrobatch : ReduceWhen::kStep; }

std::string describe(const Layout& layout) {
  std::string text = fmt::format("dp {} x tp {} x pp {}, zero {}", layout.dp, layout.tp, layout.pp, layout.zero);
  if (layout.pp > 1) text += fmt::format(", {}", schedule_name(layout.schedule));
  if (layout.interleave > 1) text += fmt::format(" x {}", layout.interleave);
  if (layout.sequence_parallel) text += ", sequence parallel";
  if (layout.all_reduce != ReduceAlgorithm::kOrdered) {
    text += fmt::format(", all-reduce {}", reduce_algorithm_name(layout.all_reduce));
  }
  return text;
}

std::int64_t micro_batches(const Layout& layout, const Batch& batch) {
  return divide_exact(batch.global_batch, batch.micro_batch * layout.dp);
}
std::int64_t tokens_per_step(const Batch& batch) { return checked_multiply(batch.global_batch, batch.sequence); }

Status check_layout(const model::Config& config, const Layout& layout, const Batch& batch) {
  for (auto* rules :
       {check_degrees, check_tensor_rules, check_pipeline_rules, check_batch_rules, check_all_reduce_rules}) {
    if (Status status = rules(config, layout, batch); !status) return status;
  }
  return ok_status();
}

Coordinates coordinates_of(const Layout& layout, int rank) {
  TRIREME_CHECK(rank >= 0 && rank < layout.world(), "rank {} of {}", rank, layout.world());
  const Strides strides = strides_of(layout);
  return {.tp = rank % layout.tp, .pp = rank / strides.pp % layout.pp, .dp = rank / strides.dp % layout.dp};
}

int rank_of(const Layout& layout, const Coordinates& c) {
  const Strides strides = strides_of(layout);
  return c.tp + c.pp * strides.pp + c.dp * strides.dp;
}

std::vector<int> process_group_of(const Layout& layout, Axis axis, int rank) {
  Coordinates coordinates = coordinates_of(layout, rank);
  std::vector<int> group;
  for (int i = 0; i < degree(layout, axis); ++i) {
    coordinate(coordinates, axis) = i;
    group.push_back(rank_of(layout, coordinates));
  }
  return group;
}

std::vector<std::vector<int>> process_groups(const Layout& layout, Axis axis) {
  std::vector<std::vector<int>> groups;
  for (int rank = 0; rank < layout.world(); ++rank) {
    Coordinates coordinates = coordinates_of(layout, rank);
    if (coordinate(coordinates, axis) == 0) groups.push_back(process_group_of(layout, axis, rank));
  }
  return groups;
}

std::vector<int> tied_group_of(const model::Config& config, const Layout& layout, int rank) {
  if (layout.pp == 1 || !config.tied_embeddings) return {};
  const std::vector<int> stages = process_group_of(layout, Axis::kPipeline, rank);
  return {stages.front(), stages.back()};
}

std::vector<int> kv_replica_group_of(const model::Config& config, const Layout& layout, int rank) {
  const int kv_heads = static_cast<int>(config.kv_heads);
  if (layout.tp <= kv_heads) return {rank};
  const std::vector<int> tensor = process_group_of(layout, Axis::kTensor, rank);
  const int replicas = layout.tp / kv_heads;
  const int first = coordinates_of(layout, rank).tp / replicas * replicas;
  return {tensor.begin() + first, tensor.begin() + first + replicas};
}

model::LocalWidths local_widths(const model::Config& config, const Layout& layout, const Batch& batch) {
  const std::int64_t tokens = batch.micro_batch * batch.sequence;
  return {.tokens = tokens,
          .sequence_tokens = layout.sequence_parallel ? tokens / layout.tp : tokens,
          .heads = config.heads / layout.tp,
          .kv_heads = std::max<std::int64_t>(1, config.kv_heads / layout.tp),
          .tp = layout.tp};
}

}  // namespace trireme::plan
