#include "plan/program_check.h"

#include <array>
#include <map>
#include <set>
#include <tuple>

#include <fmt/format.h>

namespace trireme::plan {
namespace {

using model::ActivationGroup;
using model::UnitKind;

class Checker {
 public:
  Checker(const model::ParameterTable& table, const Layout& layout, const Batch& batch, const RankProgram& program)
      : table_(table),
        layout_(layout),
        micro_batches_(static_cast<int>(micro_batches(layout, batch))),
        program_(program) {
    for (const model::UnitFlow& flow : model::flows_by_class(table.config)) {
      std::set<ActivationGroup>& groups = groups_.emplace_back();
      for (const model::SavedActivation& entry : model::saved_activations(flow)) {
        groups.insert(model::group_of(entry, layout.recompute));
      }
    }
  }

  std::string run() {
    for (const Instruction& instruction : program_.instructions) {
      if (std::string fault = one(instruction); !fault.empty()) return describe(instruction) + ": " + fault;
    }
    if (!live_.empty()) return fmt::format("{} activation groups are never freed", live_.size());
    if (!buffers_.empty()) return fmt::format("{} buffers are never freed", buffers_.size());
    return counts();
  }

 private:
  using Group = std::tuple<int, int, ActivationGroup>;  // unit, micro-batch
  using BufferKey = std::tuple<char, int, int, bool>;   // kind, unit, micro-batch, flag

  UnitKind kind(int unit) const { return model::unit_kind(table_.config, unit); }
  bool has(int unit, ActivationGroup group) const {
    return groups_[static_cast<std::size_t>(model::flow_class(table_.config, unit))].contains(group);
  }
  bool is_live(int unit, int micro_batch, ActivationGroup group) const {
    return !has(unit, group) || live_.count({unit, micro_batch, group}) > 0;
  }
  bool all_live(int unit, int m, std::initializer_list<ActivationGroup> wanted) const {
    for (ActivationGroup group : wanted) {
      if (!is_live(unit, m, group)) return false;
    }
    return true;
  }

  std::string toggle(bool add, const BufferKey& key) {
    if (add) return buffers_.insert(key).second ? "" : "exists already";
    return buffers_.erase(key) == 1 ? "" : "does not exist";
  }

  std::string weights_there(int unit, bool with_head) const {
    if (layout_.zero != 3 || layout_.dp == 1) return "";
    if (buffers_.count({'w', unit, -1, false}) == 0) return "weights are not gathered";
    if (!with_head || kind(unit) != UnitKind::kHead || !table_.config.tied_embeddings) return "";
    const BufferKey head = layout_.pp > 1 ? BufferKey{'w', unit, -1, true} : BufferKey{'w', 0, -1, false};
    return buffers_.count(head) > 0 ? "" : "the tied weights are not gathered";
  }

  std::string gradient_there(int unit, int m, bool tied_head = false) const {
    if (layout_.dp == 1 || layout_.reduce == ReduceWhen::kStep) return "";
    return buffers_.count({'g', unit, m, tied_head}) > 0 ? "" : "no gradient buffer is open";
  }

  bool input_there(int unit, int m) const {
    return all_live(unit, m, {ActivationGroup::kInput, ActivationGroup::kInputForWeight});
  }
  // Where a unit's output goes, or its input's gradient.
  bool output_there(const Instruction& i, bool backward) const {
    const Chunk& chunk = program_.chunks[static_cast<std::size_t>(i.chunk)];
    if (backward) {
      if (i.unit > chunk.first_unit) return is_live(i.unit - 1, i.micro_batch, ActivationGroup::kOutputGradient);
      return buffers_.count({'b', i.unit, i.micro_batch, true}) > 0;
    }
    if (i.unit + 1 < chunk.end_unit) return input_there(i.unit + 1, i.micro_batch);
    return kind(i.unit) == UnitKind::kHead || buffers_.count({'b', i.unit, i.micro_batch, false}) > 0;
  }

  std::string one(const Instruction& i) {
    const int m = i.micro_batch;
    switch (i.op) {
      case Op::kAllocate:
        return live_.insert({i.unit, m, i.group}).second ? "" : "is allocated already";
      case Op::kFree:
        return live_.erase({i.unit, m, i.group}) == 1 ? "" : "is not allocated";
      case Op::kAllocateBoundary:
      case Op::kFreeBoundary:
        return toggle(i.op == Op::kAllocateBoundary, {'b', i.unit, m, i.backward});
      case Op::kGather:
      case Op::kRelease:
        return toggle(i.op == Op::kGather, {'w', i.unit, -1, i.tied_head});
      case Op::kOpenGradient:
      case Op::kCloseGradient:
        return toggle(i.op == Op::kOpenGradient, {'g', i.unit, m, i.tied_head});
      case Op::kReceiveActivation:
        return input_there(i.unit, m) ? "" : "has no place to go";
      case Op::kReceiveGradient:
        return is_live(i.unit, m, ActivationGroup::kOutputGradient) ? "" : "has no place to go";
      case Op::kSendActivation:
      case Op::kSendGradient:
        return buffers_.count({'b', i.unit, m, i.op == Op::kSendGradient}) > 0 ? "" : "has nothing to send";
      default:
        return work(i);
    }
  }

  std::string work(const Instruction& i) {
    const int m = i.micro_batch;
    if (i.op == Op::kReduce) return reduce(i);
    ++done_[{i.op, i.unit, m, i.tied_head}];
    switch (i.op) {
      case Op::kForward:
        if (!all_live(i.unit, m,
                      {ActivationGroup::kInput, ActivationGroup::kInputForWeight, ActivationGroup::kKept,
                       ActivationGroup::kKeptForWeight, ActivationGroup::kRemade, ActivationGroup::kRemadeForWeight})) {
          return "a buffer is missing";
        }
        if (!output_there(i, false)) return "the output has no place to go";
        return weights_there(i.unit, false);
      case Op::kEvaluateLoss:
        return weights_there(i.unit, true);
      case Op::kRecompute:
      case Op::kBackwardInput:
        if (!all_live(i.unit, m,
                      {ActivationGroup::kInput, ActivationGroup::kInputForWeight, ActivationGroup::kKept,
                       ActivationGroup::kKeptForWeight, ActivationGroup::kRemade, ActivationGroup::kRemadeForWeight})) {
          return "a buffer is missing";
        }
        if (i.op == Op::kRecompute) return weights_there(i.unit, false);
        if (times(Op::kRecompute, i.unit, m) != (drops(i.unit) ? 1 : 0)) return "what was dropped is not made again";
        if (!all_live(i.unit, m, {ActivationGroup::kOutputGradient, ActivationGroup::kGradient})) {
          return "a gradient's buffer is missing";
        }
        if (!output_there(i, true)) return "the input's gradient has no place to go";
        if (std::string fault = gradient_there(i.unit, m); !fault.empty()) return fault;
        return weights_there(i.unit, true);
      case Op::kBackwardWeight:
        if (!all_live(
                i.unit, m,
                {ActivationGroup::kInputForWeight, ActivationGroup::kKeptForWeight, ActivationGroup::kRemadeForWeight,
                 ActivationGroup::kOutputGradient, ActivationGroup::kGradient})) {
          return "a buffer is missing";
        }
        return gradient_there(i.unit, m);
      case Op::kSumTied:
        return i.peer < 0 || program_.chunks.front().first_unit > 0 || buffers_.count({'b', 0, -1, true}) > 0
                   ? ""
                   : "the copy's gradient has no place to go";
      default:
        return "";
    }
  }

  std::string reduce(const Instruction& i) {
    if (i.bucket < 0 || i.bucket >= static_cast<int>(program_.buckets.size())) return "there is no such bucket";
    const Bucket& bucket = program_.buckets[static_cast<std::size_t>(i.bucket)];
    for (int s = bucket.first; s < bucket.end; ++s) {
      const ShardUnit& shard = program_.shard_units[static_cast<std::size_t>(s)];
      ++done_[{i.op, shard.unit, i.micro_batch, shard.tied_head}];
      if (std::string fault = gradient_there(shard.unit, i.micro_batch, shard.tied_head); !fault.empty()) return fault;
    }
    return "";
  }

  bool drops(int unit) const {
    return has(unit, ActivationGroup::kRemade) || has(unit, ActivationGroup::kRemadeForWeight);
  }
  int times(Op op, int unit, int m, bool tied_head = false) const {
    const auto found = done_.find({op, unit, m, tied_head});
    return found == done_.end() ? 0 : found->second;
  }

  // Gradients over the data axis, and the update, of every shard unit.
  std::string shard_counts(bool training) const {
    const bool each_micro_batch = layout_.reduce == ReduceWhen::kMicrobatch;
    const bool gathers = layout_.dp > 1 && (layout_.zero == 1 || layout_.zero == 2);
    for (const ShardUnit& shard : program_.shard_units) {
      for (int m = 0; m < micro_batches_; ++m) {
        const bool reduces = training && layout_.dp > 1 && (each_micro_batch || m == micro_batches_ - 1);
        if (times(Op::kReduce, shard.unit, m, shard.tied_head) != (reduces ? 1 : 0)) {
          return fmt::format("the gradient of unit {} is reduced a wrong number of times for micro-batch {}",
                             shard.unit, m);
        }
      }
      const int updates = training && shard.holds_moments ? 1 : 0;
      if (times(Op::kUpdate, shard.unit, -1, shard.tied_head) != updates ||
          times(Op::kGatherUpdated, shard.unit, -1, shard.tied_head) != (gathers ? updates : 0)) {
        return fmt::format("unit {}: wrong updates", shard.unit);
      }
    }
    return "";
  }

  // A training program takes the gradient's norm; then every unit does all of its work for every micro-batch.
  std::string counts() const {
    const int norms = times(Op::kGradientNorm, -1, -1);
    const bool training = norms > 0;
    if (norms > 1) return "the gradient's norm is taken twice";
    for (const Chunk& chunk : program_.chunks) {
      for (int unit = chunk.first_unit; unit < chunk.end_unit; ++unit) {
        for (int m = 0; m < (training ? micro_batches_ : 1); ++m) {
          const bool input = kind(unit) != UnitKind::kEmbedding, weight = kind(unit) != UnitKind::kHead;
          if (times(Op::kForward, unit, m) != 1)
            return fmt::format("unit {} micro-batch {} goes forward {} times", unit, m, times(Op::kForward, unit, m));
          if (times(Op::kBackwardInput, unit, m) != (training && input ? 1 : 0) ||
              times(Op::kBackwardWeight, unit, m) != (training && weight ? 1 : 0)) {
            return fmt::format("unit {} micro-batch {}: wrong backward passes", unit, m);
          }
          if (times(Op::kEvaluateLoss, unit, m) != (!training && !weight ? 1 : 0)) {
            return fmt::format("unit {} micro-batch {}: wrong evaluations of the loss", unit, m);
          }
        }
      }
    }
    return shard_counts(training);
  }

  const model::ParameterTable& table_;
  const Layout& layout_;
  int micro_batches_;
  const RankProgram& program_;
  std::vector<std::set<ActivationGroup>> groups_;  // by model::flow_class
  std::set<Group> live_;
  std::set<BufferKey> buffers_;
  std::map<std::tuple<Op, int, int, bool>, int> done_;
};

}  // namespace

std::string check_program(const model::ParameterTable& table, const Layout& layout, const Batch& batch,
                          const RankProgram& program) {
  return Checker(table, layout, batch, program).run();
}

}  // namespace trireme::plan
