#include "plan/memory.h"

#include "base/check.h"
#include "plan/staging.h"
#include "plan/workspace.h"

namespace trireme::plan {
namespace {

constexpr std::pair<DType, std::string_view> kPrecisions[] = {
    {DType::kF32, "fp32"}, {DType::kBF16, "bf16"}, {DType::kF16, "fp16"}};

struct StaticKindName {
  StaticKind kind;
  std::string_view name;
};
constexpr StaticKindName kStaticKinds[] = {
    {StaticKind::kStaging, "staging"},
    {StaticKind::kWeights, "weights"},
    {StaticKind::kGradients, "gradients"},
    {StaticKind::kMasterWeights, "master weights"},
    {StaticKind::kFirstMoment, "first moment"},
    {StaticKind::kSecondMoment, "second moment"},
    {StaticKind::kInputs, "token inputs"},
    {StaticKind::kTargets, "token targets"},
    {StaticKind::kEvaluationInputs, "validation inputs"},
    {StaticKind::kEvaluationTargets, "validation targets"},
    {StaticKind::kLogits, "logits"},
    {StaticKind::kRowTerms, "terms of the softmax"},
    {StaticKind::kLosses, "losses"},
    {StaticKind::kWorkspace, "workspace"},
    {StaticKind::kCheckpointStaging, "checkpoint staging"},
};

void check_compute(const RunInputs& inputs) {
  const DType wide = wide_dtype(inputs.compute);
  TRIREME_CHECK(wide == DType::kF32 || wide == DType::kF64, "no sizes for a {} run", dtype_name(inputs.compute));
}

class StaticList {
 public:
  StaticList(const model::ParameterTable& table, const Layout& layout, const Batch& batch, const RunInputs& inputs,
             int rank)
      : table_(table), layout_(layout), batch_(batch), inputs_(inputs), rank_(rank) {}

  std::vector<StaticBuffer> make() {
    check_compute(inputs_);
    add(MemoryClass::kCommunicationBuffers, StaticKind::kStaging, -1,
        staging_of(table_, layout_, batch_, inputs_, rank_).sum());
    const std::vector<ShardUnit> units = shard_units(table_, layout_, rank_);
    for (std::size_t i = 0; i < units.size(); ++i) add_unit(units[i], static_cast<int>(i));
    add_gradients(units);
    bool embedding = false, head = false;
    for (const ShardUnit& unit : units) {
      embedding = embedding || model::unit_kind(table_.config, unit.unit) == model::UnitKind::kEmbedding;
      head = head || model::unit_kind(table_.config, unit.unit) == model::UnitKind::kHead;
    }
    add_tokens(embedding, head);
    if (head) add_loss();
    add(MemoryClass::kWorkspace, StaticKind::kWorkspace, -1,
        workspace_bytes(table_.config, layout_, batch_, inputs_, rank_));
    add(MemoryClass::kCheckpointStaging, StaticKind::kCheckpointStaging, -1,
        checkpoint_staging_bytes(table_, layout_, rank_, inputs_.checkpoints));
    return std::move(list_);
  }

 private:
  void add(MemoryClass memory_class, StaticKind kind, int unit, Bytes bytes) {
    if (bytes.count > 0) {
      list_.push_back({.memory_class = memory_class, .kind = kind, .shard_unit = unit, .bytes = bytes});
    }
  }
  static Bytes sized(std::int64_t elements, DType dtype) {
    return Bytes{checked_multiply(elements, dtype_size(dtype))};
  }
  Bytes state(std::int64_t elements) const { return sized(elements, state_dtype(inputs_)); }

  void add_unit(const ShardUnit& unit, int index) {
    const std::int64_t shard = unit.elements / layout_.dp;
    if (unit.holds_weights) {
      add(MemoryClass::kWeights, StaticKind::kWeights, index,
          sized(layout_.zero == 3 ? shard : unit.elements, inputs_.compute));
    }
    if (!unit.holds_moments) return;
    const Bytes moment = state(layout_.zero >= 1 ? shard : unit.elements);
    if (has_master_weights(inputs_)) add(MemoryClass::kMasterWeights, StaticKind::kMasterWeights, index, moment);
    add(MemoryClass::kMoments, StaticKind::kFirstMoment, index, moment);
    add(MemoryClass::kMoments, StaticKind::kSecondMoment, index, moment);
  }

  void add_gradients(const std::vector<ShardUnit>& units) {
    std::int64_t elements = 0;
    for (const ShardUnit& unit : units) elements += accumulator_elements(unit, layout_);
    add(MemoryClass::kGradients, StaticKind::kGradients, -1, sized(elements, gradient_dtype(inputs_)));
  }

  void add_tokens(bool embedding, bool head) {
    const Bytes micro_batch{batch_.micro_batch * batch_.sequence * dtype_size(DType::kI32)};
    const Bytes step = micro_batch * micro_batches(layout_, batch_);
    const Bytes evaluation = inputs_.evaluation_micro_batches > 0 ? micro_batch : Bytes{};
    if (embedding) {
      add(MemoryClass::kTokenBatch, StaticKind::kInputs, -1, step);
      add(MemoryClass::kTokenBatch, StaticKind::kEvaluationInputs, -1, evaluation);
    }
    if (head) {
      add(MemoryClass::kTokenBatch, StaticKind::kTargets, -1, step);
      add(MemoryClass::kTokenBatch, StaticKind::kEvaluationTargets, -1, evaluation);
    }
  }

  void add_loss() {
    const int tp = coordinates_of(layout_, rank_).tp;
    const std::int64_t vocabulary =
        table_.config.vocabulary * (tp + 1) / layout_.tp - table_.config.vocabulary * tp / layout_.tp;
    const std::int64_t rows = logit_rows(batch_);
    add(MemoryClass::kLogitsAndLoss, StaticKind::kLogits, -1, state(checked_multiply(rows, vocabulary)));
    add(MemoryClass::kLogitsAndLoss, StaticKind::kRowTerms, -1, state(3 * rows));
    add(MemoryClass::kLogitsAndLoss, StaticKind::kLosses, -1, state(batch_.micro_batch * batch_.sequence));
  }

  const model::ParameterTable& table_;
  const Layout& layout_;
  const Batch& batch_;
  const RunInputs& inputs_;
  int rank_;
  std::vector<StaticBuffer> list_;
};

const ShardUnit& shard_unit_of(const RankProgram& program, const Instruction& instruction) {
  return program.shard_units[static_cast<std::size_t>(shard_unit_index(program, instruction))];
}

bool allocates(Op op) {
  return op == Op::kAllocate || op == Op::kAllocateBoundary || op == Op::kGather || op == Op::kOpenGradient;
}
bool frees(Op op) {
  return op == Op::kFree || op == Op::kFreeBoundary || op == Op::kRelease || op == Op::kCloseGradient;
}

}  // namespace

Result<DType> parse_precision(std::string_view text) {
  for (const auto& [compute, word] : kPrecisions) {
    if (word == text) return compute;
  }
  return Failure{
      .option = "precision", .value = std::string(text), .rule = "is not known", .nearest = "fp32, bf16, fp16"};
}
std::string_view precision_name(DType compute) {
  for (const auto& [known, word] : kPrecisions) {
    if (known == compute) return word;
  }
  TRIREME_CHECK(false, "no word for {}", dtype_name(compute));
}

DType gradient_dtype(const RunInputs& inputs) {
  return inputs.fp32_gradients ? wide_dtype(inputs.compute) : inputs.compute;
}
DType state_dtype(const RunInputs& inputs) { return wide_dtype(inputs.compute); }
bool has_master_weights(const RunInputs& inputs) { return is_narrow(inputs.compute); }

std::int64_t accumulator_elements(const ShardUnit& unit, const Layout& layout) {
  const bool sharded = layout.zero >= 2 && layout.reduce == ReduceWhen::kMicrobatch;
  return sharded ? unit.elements / layout.dp : unit.elements;
}

std::string_view static_kind_name(StaticKind kind) {
  for (const StaticKindName& known : kStaticKinds) {
    if (known.kind == kind) return known.name;
  }
  TRIREME_CHECK(false, "static buffer kind {}", static_cast<int>(kind));
}

std::vector<StaticBuffer> static_buffers(const model::ParameterTable& table, const Layout& layout, const Batch& batch,
                                         const RunInputs& inputs, int rank) {
  return StaticList(table, layout, batch, inputs, rank).make();
}

BookingTable::BookingTable(const model::ParameterTable& table, const Layout& layout, const Batch& batch,
                           const RunInputs& inputs, int rank, const RankProgram& program)
    : config_(table.config),
      element_(dtype_size(inputs.compute)),
      gradient_element_(dtype_size(gradient_dtype(inputs))),
      program_(program) {
  const model::LocalWidths widths = local_widths(table.config, layout, batch);
  check_compute(inputs);
  boundary_ = Bytes{widths.sequence_tokens * table.config.hidden * element_};
  const ShardUnit& first = program.shard_units.front();
  if (table.config.tied_embeddings && first.unit == 0) {
    const int dp_index = coordinates_of(layout, rank).dp;
    tied_boundary_ = Bytes{tied_elements(first, layout, dp_index, layout.zero >= 1) * gradient_element_};
  }
  for (const model::UnitFlow& flow : model::flows_by_class(table.config)) {
    auto& groups = groups_.emplace_back();
    for (const model::SavedActivation& entry : model::saved_activations(flow)) {
      const model::ActivationShape shape = model::local_shape(entry.value, widths);
      groups[static_cast<std::size_t>(model::group_of(entry, layout.recompute))].push_back(
          Bytes{checked_multiply(shape.rows, shape.columns) *
                (entry.value.statistics ? dtype_size(state_dtype(inputs)) : element_)});
    }
  }
}

Booking BookingTable::operator()(const Instruction& instruction) const {
  switch (instruction.op) {
    case Op::kAllocate:
    case Op::kFree: {
      const auto flow = static_cast<std::size_t>(model::flow_class(config_, instruction.unit));
      return {MemoryClass::kSavedActivations, groups_[flow][static_cast<std::size_t>(instruction.group)]};
    }
    case Op::kAllocateBoundary:
    case Op::kFreeBoundary:
      return {MemoryClass::kCommunicationBuffers, {instruction.tied_head ? tied_boundary_ : boundary_}};
    case Op::kGather:
    case Op::kRelease:
      return {MemoryClass::kGatheredParameters, {Bytes{shard_unit_of(program_, instruction).elements * element_}}};
    case Op::kOpenGradient:
    case Op::kCloseGradient:
      return {MemoryClass::kGradients, {Bytes{shard_unit_of(program_, instruction).elements * gradient_element_}}};
    default:
      return {};
  }
}

Ledger predict_memory(const model::ParameterTable& table, const Layout& layout, const Batch& batch,
                      const RunInputs& inputs, int rank) {
  Ledger ledger;
  for (const StaticBuffer& buffer : static_buffers(table, layout, batch, inputs, rank)) {
    ledger.book(buffer.memory_class, buffer.bytes);
  }
  const auto walk = [&](const RankProgram& program) {
    const BookingTable bookings(table, layout, batch, inputs, rank, program);
    for (const Instruction& instruction : program.instructions) {
      if (!allocates(instruction.op) && !frees(instruction.op)) continue;
      const Booking booking = bookings(instruction);
      for (Bytes bytes : booking.buffers) {
        if (allocates(instruction.op)) {
          ledger.book(booking.memory_class, bytes);
        } else {
          ledger.release(booking.memory_class, bytes);
        }
      }
    }
  };
  walk(make_program(table, layout, batch, rank));
  if (inputs.evaluation_micro_batches > 0) walk(make_evaluation_program(table, layout, batch, rank));
  return ledger;
}

}  // namespace trireme::plan
