#include "plan/exchanges.h"

#include <algorithm>

#include "base/check.h"
#include "base/exact_sum.h"
#include "plan/tensor_flow.h"
#include "plan/workspace.h"

namespace trireme::plan {
namespace {

// Of the units of a class (model::flow_class).
struct UnitExchange {
  model::FlowStep step;
  std::int64_t columns = 0;
};
std::vector<UnitExchange> exchanges_of(const model::UnitFlow& flow, const Layout& layout) {
  std::vector<UnitExchange> exchanges;
  const model::FlowSteps bound = bind_flow(flow, layout);
  for (const model::FlowStep& step : bound.steps) {
    if (!model::is_exchange(step.op)) continue;
    const auto value = std::ranges::find(bound.values, step.reads.front(), &model::FlowValue::name);
    exchanges.push_back({.step = step, .columns = value->columns});
  }
  return exchanges;
}
std::vector<std::vector<UnitExchange>> exchanges_by_class(const model::Config& config, const Layout& layout) {
  std::vector<std::vector<UnitExchange>> all;
  for (const model::UnitFlow& flow : model::flows_by_class(config)) all.push_back(exchanges_of(flow, layout));
  return all;
}

class Walk {
 public:
  Walk(const model::ParameterTable& table, const Layout& layout, const Batch& batch, const RunInputs& inputs, int rank,
       RankProgram program, const VisitExchange& visit)
      : table_(table),
        layout_(layout),
        batch_(batch),
        at_(coordinates_of(layout, rank)),
        widths_(local_widths(table.config, layout, batch)),
        element_(dtype_size(inputs.compute)),
        gradient_element_(dtype_size(gradient_dtype(inputs))),
        term_element_(dtype_size(state_dtype(inputs))),
        masked_targets_(inputs.masked_targets),
        exchanges_(exchanges_by_class(table.config, layout)),
        program_(std::move(program)),
        visit_(visit) {}

  void step() {
    // Counted tokens; at the end the loss.
    if (masked_targets_) over(CommunicationGroup::kData, Collective::kAllReduce, 1, dtype_size(DType::kI64));
    for (const Instruction& instruction : program_.instructions) one(instruction);
    scalar(CommunicationGroup::kData, layout_.dp > 1);
    scalar(CommunicationGroup::kPipeline, layout_.pp > 1);
  }
  void evaluation() {
    for (const Instruction& instruction : program_.instructions) one(instruction);
    scalar(CommunicationGroup::kPipeline, layout_.pp > 1);
  }

 private:
  void over(CommunicationGroup group, Collective collective, std::int64_t count, std::int64_t element) {
    const bool tensor = group == CommunicationGroup::kTensor, pipeline = group == CommunicationGroup::kPipeline;
    over_members(group, collective, count, element,
                 tensor     ? at_.tp
                 : pipeline ? at_.pp
                            : at_.dp,
                 tensor     ? layout_.tp
                 : pipeline ? layout_.pp
                            : layout_.dp);
  }
  void over_members(CommunicationGroup group, Collective collective, std::int64_t count, std::int64_t element,
                    int index, int size) {
    if (size < 2) return;
    visit_({.group = group,
            .collective = collective,
            .count = count,
            .element_bytes = element,
            .index = index,
            .size = size});
  }
  void scalar(CommunicationGroup group, bool needed) {
    constexpr std::int64_t kWords = std::tuple_size_v<std::remove_cvref_t<decltype(ExactSum().words())>>;
    if (needed) over(group, Collective::kAllReduce, kWords, dtype_size(DType::kI64));
  }

  const ShardUnit& shard(const Instruction& i) const {
    return program_.shard_units[static_cast<std::size_t>(shard_unit_index(program_, i))];
  }

  void one(const Instruction& i) {
    switch (i.op) {
      case Op::kSendActivation:
      case Op::kSendGradient:
        return over(CommunicationGroup::kPipeline, Collective::kSend, widths_.sequence_tokens * table_.config.hidden,
                    element_);
      case Op::kGather:
      case Op::kGatherUpdated:
        return over(CommunicationGroup::kData, Collective::kAllGather, shard(i).elements, element_);
      case Op::kReduce:
        return reduce(program_.buckets[static_cast<std::size_t>(i.bucket)]);
      case Op::kReduceTensorPartial:
        return partial(shard(i));
      case Op::kSumTied:
      case Op::kRefreshTied:
        return tied(i);
      case Op::kGradientNorm:
        scalar(CommunicationGroup::kData, layout_.zero >= 1);
        scalar(CommunicationGroup::kTensor, layout_.tp > 1);
        return scalar(CommunicationGroup::kPipeline, layout_.pp > 1);
      default:
        if (layout_.tp > 1) tensor(i);
    }
  }

  // A bucket's all-reduce; or of each of its units a reduce-scatter to the owners of its shards.
  void reduce(const Bucket& bucket) {
    if (layout_.zero == 0)
      return over(CommunicationGroup::kData, Collective::kAllReduce, bucket.elements, gradient_element_);
    for (int s = bucket.first; s < bucket.end; ++s) {
      over(CommunicationGroup::kData, Collective::kReduceScatter,
           program_.shard_units[static_cast<std::size_t>(s)].elements, gradient_element_);
    }
  }

  void partial(const ShardUnit& unit) {
    for (const LocalTensor& tensor : unit.tensors) {
      const model::Parameter& parameter = table_.parameters[static_cast<std::size_t>(tensor.parameter)];
      if (tensor_gradient_state(parameter, layout_) != model::AxisState::kPartial) continue;
      // A split tensor is partial over the neighbours that share its key/value head, any other over all.
      over_members(parameter.split.split() ? CommunicationGroup::kKvReplicas : CommunicationGroup::kTensor,
                   Collective::kAllReduce, tensor.elements(), gradient_element_, at_.tp % tensor.tensor_replicas,
                   tensor.tensor_replicas);
    }
  }

  // The copy's gradient goes to the embedding's stage, the updated weights come back.
  void tied(const Instruction& i) {
    const bool last_stage = at_.pp == layout_.pp - 1;
    if (i.peer < 0 || (i.op == Op::kSumTied) != last_stage) return;
    const ShardUnit& unit = last_stage ? program_.shard_units.back() : program_.shard_units.front();
    const bool sharded = layout_.zero >= (i.op == Op::kSumTied ? 1 : 3);
    const std::int64_t element = i.op == Op::kSumTied ? gradient_element_ : element_;
    over(CommunicationGroup::kPipeline, Collective::kSend, tied_elements(unit, layout_, at_.dp, sharded), element);
  }

  // What the layers exchange in this pass of the unit.
  void tensor(const Instruction& i) {
    if (i.unit < 0) return;
    const auto flow = static_cast<std::size_t>(model::flow_class(table_.config, i.unit));
    for (const UnitExchange& e : exchanges_[flow]) {
      if (e.step.pass == pass_of(i.op)) exchange(e);
    }
  }

  void exchange(const UnitExchange& e) {
    const Collective collective = e.step.op == model::FlowOp::kReduceScatter ? Collective::kReduceScatter
                                  : e.step.op == model::FlowOp::kAllGather   ? Collective::kAllGather
                                                                             : Collective::kAllReduce;
    if (!e.step.by_block) {
      return over(CommunicationGroup::kTensor, collective, widths_.tokens * e.columns, element_);
    }
    const std::int64_t rows = logit_rows(batch_);
    for (std::int64_t row = 0; row < widths_.tokens; row += rows) {
      over(CommunicationGroup::kTensor, collective, e.columns * std::min(rows, widths_.tokens - row), term_element_);
    }
  }

  const model::ParameterTable& table_;
  const Layout& layout_;
  const Batch& batch_;
  Coordinates at_;
  model::LocalWidths widths_;
  std::int64_t element_;
  std::int64_t gradient_element_;
  std::int64_t term_element_;  // of the softmax
  bool masked_targets_;
  std::vector<std::vector<UnitExchange>> exchanges_;
  RankProgram program_;
  const VisitExchange& visit_;
};

}  // namespace

Axis axis_of(CommunicationGroup group) {
  switch (group) {
    case CommunicationGroup::kTensor:
    case CommunicationGroup::kKvReplicas:
      return Axis::kTensor;
    case CommunicationGroup::kPipeline:
      return Axis::kPipeline;
    case CommunicationGroup::kData:
      return Axis::kData;
  }
  TRIREME_CHECK(false, "communication group {}", static_cast<int>(group));
}

std::vector<int> members_of(const model::Config& config, const Layout& layout, CommunicationGroup group, int rank) {
  if (group == CommunicationGroup::kKvReplicas) return kv_replica_group_of(config, layout, rank);
  return process_group_of(layout, axis_of(group), rank);
}

ReduceAlgorithm algorithm_of(const Layout& layout, CommunicationGroup group) {
  return group == CommunicationGroup::kData ? layout.all_reduce : ReduceAlgorithm::kOrdered;
}

std::vector<int> hosts_of(const RunInputs& inputs, const std::vector<int>& ranks) {
  std::vector<int> hosts(ranks.size(), 0);
  if (inputs.host_of.empty()) return hosts;
  std::ranges::transform(ranks, hosts.begin(),
                         [&](int rank) { return inputs.host_of.at(static_cast<std::size_t>(rank)); });
  return hosts;
}

void for_each_exchange(const model::ParameterTable& table, const Layout& layout, const Batch& batch,
                       const RunInputs& inputs, int rank, const VisitExchange& visit) {
  Walk(table, layout, batch, inputs, rank, make_program(table, layout, batch, rank), visit).step();
}

void for_each_evaluation_exchange(const model::ParameterTable& table, const Layout& layout, const Batch& batch,
                                  const RunInputs& inputs, int rank, const VisitExchange& visit) {
  Walk(table, layout, batch, inputs, rank, make_evaluation_program(table, layout, batch, rank), visit).evaluation();
}

}  // namespace trireme::plan
