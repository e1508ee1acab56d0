#include "plan/layout_rules.h"

#include <algorithm>
#include <functional>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace trireme::plan {
namespace {

Failure refuse(std::string option, std::int64_t value, std::string rule, std::string nearest) {
  return {.option = std::move(option),
          .value = fmt::format("{}", value),
          .rule = std::move(rule),
          .nearest = std::move(nearest)};
}

// The nearest values below and above that are legal, "2, 4".
std::string nearest_legal(std::int64_t value, std::int64_t most, const std::function<bool(std::int64_t)>& legal) {
  std::string text;
  for (std::int64_t below = std::min(value - 1, most); below >= 1; --below) {
    if (!legal(below)) continue;
    text = fmt::format("{}", below);
    break;
  }
  for (std::int64_t above = std::max<std::int64_t>(1, value + 1); above <= most; ++above) {
    if (!legal(above)) continue;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", above);
    break;
  }
  return text.empty() ? "none" : text;
}

// The multiples of `part` next to a value, "30, 33".
std::string nearest_multiples(std::int64_t value, std::int64_t part) {
  const std::int64_t below = value / part * part;
  return below > 0 ? fmt::format("{}, {}", below, below + part) : fmt::format("{}", part);
}

// Ranks beyond the key/value heads share them, unless these are parts of a tensor whose other parts they do not share.
bool kv_heads_fit(const model::Config& config, std::int64_t tp) {
  return config.kv_heads % tp == 0 || (!config.fused_projections && tp % config.kv_heads == 0);
}
bool tensor_degree_fits(const model::Config& config, std::int64_t tp) {
  return config.heads % tp == 0 && kv_heads_fit(config, tp) && config.ffn % tp == 0 && tp <= config.vocabulary;
}

}  // namespace

Status check_degrees(const model::Config&, const Layout& layout, const Batch& batch) {
  struct Value {
    const char* name;
    std::int64_t value;
  };
  for (const Value& v : {Value{"layout.tp", layout.tp},
                         {"layout.pp", layout.pp},
                         {"layout.dp", layout.dp},
                         {"layout.interleave", layout.interleave},
                         {"layout.prefetch", layout.prefetch},
                         {"train.micro_batch", batch.micro_batch},
                         {"train.global_batch", batch.global_batch},
                         {"train.sequence", batch.sequence}}) {
    if (v.value < 1) return refuse(v.name, v.value, "must be at least 1", "1");
    constexpr std::int64_t kMost = 1 << 24;
    if (v.value > kMost)
      return refuse(v.name, v.value, fmt::format("must be at most {}", kMost), fmt::format("{}", kMost));
  }
  if (layout.zero < 0 || layout.zero > 3) {
    return refuse("layout.zero", layout.zero, "there are ZeRO stages 0 to 3", layout.zero < 0 ? "0" : "3");
  }
  if (layout.bucket < 0) return refuse("layout.bucket", layout.bucket, "must be at least 0", "0");
  if (layout.bucket > 0 && layout.reduce == ReduceWhen::kMicrobatch) {
    return refuse("layout.bucket", layout.bucket,
                  "layout.reduce = microbatch reduces each shard unit's gradient by itself", "0");
  }
  constexpr std::int64_t kMostRanks = 1 << 24;
  std::int64_t most = kMostRanks;
  for (const Value& v : {Value{"layout.tp", layout.tp}, {"layout.pp", layout.pp}, {"layout.dp", layout.dp}}) {
    if (v.value > most) {
      return refuse(v.name, v.value, fmt::format("tp x pp x dp must be at most {}", kMostRanks),
                    fmt::format("{}", most));
    }
    most /= v.value;
  }
  return ok_status();
}

Status check_tensor_rules(const model::Config& config, const Layout& layout, const Batch& batch) {
  const auto legal = [&](std::int64_t tp) { return tensor_degree_fits(config, tp); };
  const std::int64_t tp = layout.tp;
  if (!legal(tp)) {
    std::string rule = fmt::format("tp must divide the heads ({})", config.heads);
    if (config.heads % tp == 0) {
      rule = !kv_heads_fit(config, tp)
                 ? fmt::format("tp must divide{} the kv heads ({})",
                               config.fused_projections ? "" : ", or be divided by,", config.kv_heads)
             : config.ffn % tp != 0 ? fmt::format("tp must divide the ffn width ({})", config.ffn)
                                    : fmt::format("tp must be at most the vocabulary ({})", config.vocabulary);
    }
    return refuse("layout.tp", tp, rule, nearest_legal(tp, config.heads, legal));
  }
  if (!layout.sequence_parallel) return ok_status();
  if (tp == 1) {
    return Failure{.option = "layout.sequence_parallel",
                   .value = "true",
                   .rule = "cuts the sequence over tensor-parallel ranks, and layout.tp is 1",
                   .nearest = "false, or layout.tp of at least 2"};
  }
  if (batch.sequence % tp != 0) {
    return refuse("train.sequence", batch.sequence,
                  fmt::format("sequence parallelism needs a sequence that tp ({}) divides", tp),
                  nearest_legal(batch.sequence, config.max_positions, [&](std::int64_t s) { return s % tp == 0; }));
  }
  return ok_status();
}

Status check_pipeline_rules(const model::Config& config, const Layout& layout, const Batch& batch) {
  const std::int64_t chunks = static_cast<std::int64_t>(layout.pp) * layout.interleave;
  if (layout.interleave > config.layers) {
    return refuse("layout.interleave", layout.interleave,
                  fmt::format("every chunk has at least one of the layers ({})", config.layers),
                  fmt::format("{}", config.layers));
  }
  if (chunks > config.layers) {
    return refuse("layout.pp", layout.pp,
                  fmt::format("pp x interleave ({}) must be at most the layers ({})", chunks, config.layers),
                  fmt::format("{}", config.layers / layout.interleave));
  }
  const bool interleaved = layout.schedule == ScheduleKind::kInterleaved;
  if (layout.interleave > 1 && !interleaved) {
    return refuse(
        "layout.interleave", layout.interleave,
        fmt::format("several chunks a stage need the interleaved schedule, not {}", schedule_name(layout.schedule)),
        "1, or layout.schedule = interleaved");
  }
  if (layout.interleave > 1 && layout.pp == 1) {
    return refuse("layout.interleave", layout.interleave, "with one stage there is nothing to interleave", "1");
  }
  if (!layout.chunk_layers.empty()) {
    std::int64_t sum = 0;
    for (int layers : layout.chunk_layers) sum += layers;
    if (std::ranges::min(layout.chunk_layers) < 1 || sum != config.layers ||
        static_cast<std::int64_t>(layout.chunk_layers.size()) != chunks) {
      return Failure{
          .option = "layout.chunk_layers",
          .value = fmt::format("[{}]", fmt::join(layout.chunk_layers, ", ")),
          .rule = fmt::format("must be {} numbers of at least 1 that sum to the layers ({})", chunks, config.layers),
          .nearest =
              fmt::format("{}", fmt::join(balanced_chunks(config, static_cast<int>(chunks), batch.sequence), ", "))};
    }
  }
  const std::int64_t replicas = batch.micro_batch * layout.dp;
  if (layout.interleave > 1 && batch.global_batch % replicas == 0 && batch.global_batch / replicas % layout.pp != 0) {
    return refuse("train.global_batch", batch.global_batch,
                  fmt::format("the interleaved schedule needs micro-batches ({}) that pp ({}) divides",
                              batch.global_batch / replicas, layout.pp),
                  nearest_multiples(batch.global_batch, replicas * layout.pp));
  }
  return ok_status();
}

Status check_batch_rules(const model::Config& config, const Layout& layout, const Batch& batch) {
  const std::int64_t part = checked_multiply(batch.micro_batch, layout.dp);
  if (batch.global_batch % part != 0) {
    return refuse("train.global_batch", batch.global_batch,
                  fmt::format("micro_batch x dp ({} x {}) must divide it", batch.micro_batch, layout.dp),
                  nearest_multiples(batch.global_batch, part));
  }
  constexpr std::int64_t kMostMicroBatches = 1 << 20;
  if (batch.global_batch / part > kMostMicroBatches) {
    return refuse("train.global_batch", batch.global_batch,
                  fmt::format("a rank would run {} micro-batches a step, at most {} are possible",
                              batch.global_batch / part, kMostMicroBatches),
                  fmt::format("{}", kMostMicroBatches * part));
  }
  if (batch.sequence > config.max_positions) {
    return refuse("train.sequence", batch.sequence, fmt::format("the model has {} positions", config.max_positions),
                  fmt::format("{}", config.max_positions));
  }
  return ok_status();
}

Status check_all_reduce_rules(const model::Config&, const Layout& layout, const Batch&) {
  const ReduceAlgorithm algorithm = layout.all_reduce;
  if (algorithm == ReduceAlgorithm::kOrdered) return ok_status();
  Failure failure{.option = "layout.all_reduce",
                  .value = std::string(reduce_algorithm_name(algorithm)),
                  .rule = "sums gradients over the data axis, and layout.dp is 1",
                  .nearest = "ordered, or layout.dp of at least 2"};
  if (layout.dp == 1) return failure;
  if (algorithm == ReduceAlgorithm::kRing) return ok_status();
  failure.nearest = "ordered, ring";
  if (layout.zero > 0) {
    failure.rule = fmt::format("ZeRO stage {} sums by reduce-scatter, which is ordered or a ring", layout.zero);
    return failure;
  }
  if (layout.reduce == ReduceWhen::kMicrobatch) {
    failure.rule = "layout.reduce = microbatch keeps the sums that ZeRO's reduce-scatters form: ordered or a ring";
    return failure;
  }
  return ok_status();
}

}  // namespace trireme::plan
