#include "plan/traffic.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/exact_sum.h"
#include "plan/tensor_flow.h"
#include "plan/workspace.h"

namespace trireme::plan {
namespace {

// By unit kind.
std::array<UnitFlow, 3> unit_exchanges(const model::Config& config, const Layout& layout) {
  const auto of = [&](model::UnitKind kind) { return exchanges_of(unit_flow(config, layout, kind)); };
  return {of(model::UnitKind::kEmbedding), of(model::UnitKind::kDecoder), of(model::UnitKind::kHead)};
}

class Walk {
 public:
  Walk(const model::ParameterTable& table, const Layout& layout, const Batch& batch, const RunInputs& inputs, int rank)
      : table_(table),
        layout_(layout),
        batch_(batch),
        at_(coordinates_of(layout, rank)),
        widths_(local_widths(table.config, layout, batch)),
        element_(dtype_size(inputs.compute)),
        gradient_element_(dtype_size(gradient_dtype(inputs))),
        masked_targets_(inputs.masked_targets),
        exchanges_(unit_exchanges(table.config, layout)),
        program_(make_program(table, layout, batch, rank)) {}

  TrafficTable run() {
    if (masked_targets_) over(Axis::kData, Collective::kAllReduce, 1, dtype_size(DType::kI64));  // counted tokens
    for (const Instruction& instruction : program_.instructions) one(instruction);
    scalar(Axis::kData, layout_.dp > 1);  // the loss
    scalar(Axis::kPipeline, layout_.pp > 1);
    return std::move(traffic_);
  }

 private:
  void add(Axis axis, Collective collective, Bytes sent) {
    Traffic& traffic = traffic_[{axis, collective}];
    ++traffic.calls;
    traffic.sent += sent;
  }
  void over(Axis axis, Collective collective, std::int64_t count, std::int64_t element) {
    const bool tensor = axis == Axis::kTensor, pipeline = axis == Axis::kPipeline;
    over_group(axis, collective, count, element,
               tensor     ? at_.tp
               : pipeline ? at_.pp
                          : at_.dp,
               tensor     ? layout_.tp
               : pipeline ? layout_.pp
                          : layout_.dp);
  }
  void over_group(Axis axis, Collective collective, std::int64_t count, std::int64_t element, int index, int size) {
    if (size < 2) return;
    add(axis, collective, collective_bytes(collective, count, element, index, size));
  }
  void scalar(Axis axis, bool needed) {
    constexpr std::int64_t kWords = std::tuple_size_v<std::remove_cvref_t<decltype(ExactSum().words())>>;
    if (needed) over(axis, Collective::kAllReduce, kWords, dtype_size(DType::kI64));
  }

  const ShardUnit& shard(const Instruction& i) const {
    for (const ShardUnit& unit : program_.shard_units) {
      if (unit.unit == i.unit && unit.tied_head == i.tied_head) return unit;
    }
    TRIREME_CHECK(false, "{}: no such shard unit", describe(i));
  }

  void one(const Instruction& i) {
    switch (i.op) {
      case Op::kSendActivation:
      case Op::kSendGradient:
        return add(Axis::kPipeline, Collective::kSend,
                   Bytes{widths_.sequence_tokens * table_.config.hidden * element_});
      case Op::kGather:
      case Op::kGatherUpdated:
        return over(Axis::kData, Collective::kAllGather, shard(i).elements, element_);
      case Op::kReduce:
        return reduce(program_.buckets[static_cast<std::size_t>(i.bucket)]);
      case Op::kReduceTensorPartial:
        return partial(shard(i));
      case Op::kSumTied:
      case Op::kRefreshTied:
        return tied(i);
      case Op::kGradientNorm:
        scalar(Axis::kData, layout_.zero >= 1);
        scalar(Axis::kTensor, layout_.tp > 1);
        return scalar(Axis::kPipeline, layout_.pp > 1);
      default:
        if (layout_.tp > 1) tensor(i);
    }
  }

  // A bucket's all-reduce; or of each of its units a reduce-scatter to the owners of its shards.
  void reduce(const Bucket& bucket) {
    if (layout_.zero == 0) return over(Axis::kData, Collective::kAllReduce, bucket.elements, gradient_element_);
    for (int s = bucket.first; s < bucket.end; ++s) {
      over(Axis::kData, Collective::kReduceScatter, program_.shard_units[static_cast<std::size_t>(s)].elements,
           gradient_element_);
    }
  }

  void partial(const ShardUnit& unit) {
    for (const LocalTensor& tensor : unit.tensors) {
      const model::Parameter& parameter = table_.parameters[static_cast<std::size_t>(tensor.parameter)];
      if (tensor_gradient_state(parameter, layout_) != model::AxisState::kPartial) continue;
      // A split tensor is partial over the neighbours that share its key/value head, any other over all.
      over_group(Axis::kTensor, Collective::kAllReduce, tensor.elements(), gradient_element_,
                 at_.tp % tensor.tensor_replicas, tensor.tensor_replicas);
    }
  }

  // The copy's gradient goes to the embedding's stage, the updated weights come back.
  void tied(const Instruction& i) {
    const bool last_stage = at_.pp == layout_.pp - 1;
    if (i.peer < 0 || (i.op == Op::kSumTied) != last_stage) return;
    const ShardUnit& unit = last_stage ? program_.shard_units.back() : program_.shard_units.front();
    const bool sharded = layout_.zero >= (i.op == Op::kSumTied ? 1 : 3);
    const std::int64_t element = i.op == Op::kSumTied ? gradient_element_ : element_;
    add(Axis::kPipeline, Collective::kSend, Bytes{tied_elements(unit, layout_, at_.dp, sharded) * element});
  }

  // What the layers exchange in this pass of the unit.
  void tensor(const Instruction& i) {
    if (i.unit < 0) return;
    const auto kind = static_cast<std::size_t>(model::unit_kind(table_.config, i.unit));
    for (const FlowStep& step : exchanges_[kind]) {
      if (step.pass == i.op) exchange(step);
    }
  }

  void exchange(const FlowStep& step) {
    const Collective collective = step.op == FlowOp::kReduceScatter ? Collective::kReduceScatter
                                  : step.op == FlowOp::kAllGather   ? Collective::kAllGather
                                                                    : Collective::kAllReduce;
    if (step.size == FlowSize::kHidden) {
      return over(Axis::kTensor, collective, widths_.tokens * table_.config.hidden, element_);
    }
    const std::int64_t rows = logit_rows(batch_), each = step.size == FlowSize::kBlockRows ? 1 : 2;
    for (std::int64_t row = 0; row < widths_.tokens; row += rows) {
      over(Axis::kTensor, collective, each * std::min(rows, widths_.tokens - row), element_);
    }
  }

  const model::ParameterTable& table_;
  const Layout& layout_;
  const Batch& batch_;
  Coordinates at_;
  model::LocalWidths widths_;
  std::int64_t element_;
  std::int64_t gradient_element_;
  bool masked_targets_;
  std::array<UnitFlow, 3> exchanges_;
  RankProgram program_;
  TrafficTable traffic_;
};

}  // namespace

std::string_view collective_name(Collective collective) {
  constexpr std::string_view kNames[] = {"send", "all-reduce", "reduce-scatter", "all-gather"};
  return kNames[static_cast<std::size_t>(collective)];
}

Bytes collective_bytes(Collective collective, std::int64_t count, std::int64_t element_bytes, int index, int size) {
  const auto share = [&](int i) { return count * (i + 1) / size - count * i / size; };
  const std::int64_t scatter = count - share(index);
  const std::int64_t gather = count - share((index + 1) % size);
  switch (collective) {
    case Collective::kSend:
      return Bytes{checked_multiply(count, element_bytes)};
    case Collective::kReduceScatter:
      return Bytes{checked_multiply(scatter, element_bytes)};
    case Collective::kAllGather:
      return Bytes{checked_multiply(gather, element_bytes)};
    case Collective::kAllReduce:
      return Bytes{checked_multiply(scatter + gather, element_bytes)};
  }
  TRIREME_CHECK(false, "collective {}", static_cast<int>(collective));
}

TrafficTable predict_traffic(const model::ParameterTable& table, const Layout& layout, const Batch& batch,
                             const RunInputs& inputs, int rank) {
  return Walk(table, layout, batch, inputs, rank).run();
}

}  // namespace trireme::plan
