#include "plan/unit_program.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <set>

#include "base/attention_tile.h"
#include "base/check.h"

namespace trireme::plan {
namespace {

using model::FlowOp;
using model::FlowPass;
using model::FlowStep;
using model::FlowValue;

struct Sharing {
  std::size_t read, write;
};
// Results that may lie where an operand lies (engine/kernels/kernels.h), the preferred first.
std::vector<Sharing> sharing_of(FlowOp op) {
  switch (op) {
    case FlowOp::kAdd:
      return {{1, 0}, {0, 0}};
    case FlowOp::kSumGradients:
      return {{0, 0}, {1, 0}};
    case FlowOp::kAddPositions:
    case FlowOp::kDropout:
    case FlowOp::kDropoutGradient:
    case FlowOp::kScale:
    case FlowOp::kScaleGradient:
    case FlowOp::kActivationGradient:
      return {{0, 0}};
    case FlowOp::kNormGradient:  // what is added
      return {{3, 0}};
    default:
      return {};
  }
}

struct Extent {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};

// What values take on a rank.
struct Sizes {
  const model::Config& config;
  const Batch& batch;
  const RunInputs& inputs;
  model::LocalWidths widths;

  Bytes bytes(Extent extent, bool statistics) const {
    const std::int64_t each = dtype_size(statistics ? state_dtype(inputs) : inputs.compute);
    return allocation_size(Bytes{checked_multiply(checked_multiply(extent.rows, extent.columns), each)});
  }
  Extent extent(const FlowValue& value) const {
    const model::ActivationShape local = model::local_shape(value, widths);
    return {local.rows, local.columns};
  }
  // What a step's kernels need of the workspace beside its operands, the first of which is `value`.
  Extent scratch(FlowOp op, const FlowValue& value) const {
    switch (op) {
      case FlowOp::kAttention:
        return {inputs.threads, attention_forward_scratch(batch.sequence, config.head_dim)};
      case FlowOp::kAttentionGradient:
        return {inputs.threads, attention_backward_scratch(batch.sequence, config.head_dim)};
      case FlowOp::kHeadNorm:
      case FlowOp::kHeadNormGradient: {  // statistics of every head of every row
        const Extent x = extent(value);
        return {x.rows * x.columns / config.head_dim, 2};
      }
      default:
        return {};
    }
  }
  Bytes bytes(const WorkspacePlace& place) const {
    if (place.scratch_of) return bytes(scratch(*place.scratch_of, place.values.front()), true);
    Bytes most;
    for (const FlowValue& value : place.values) most = std::max(most, bytes(extent(value), value.statistics));
    return most;
  }
};

bool meet(const WorkspacePlace& a, const WorkspacePlace& b) { return a.first <= b.last && b.first <= a.last; }

struct Packing {
  std::vector<Bytes> offsets;  // by place
  Bytes size;
};
// The longest lived first, each as low as it can be.
Packing pack(const std::vector<WorkspacePlace>& places, const Sizes& sizes) {
  std::vector<Bytes> bytes;
  for (const WorkspacePlace& place : places) bytes.push_back(sizes.bytes(place));
  std::vector<std::size_t> order(places.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater{}, [&](std::size_t i) { return places[i].last - places[i].first; });
  Packing packing{.offsets = std::vector<Bytes>(places.size()), .size = {}};
  std::vector<std::size_t> done;  // by offset
  for (const std::size_t i : order) {
    Bytes offset;
    for (const std::size_t other : done) {
      if (!meet(places[i], places[other])) continue;
      if (packing.offsets[other] >= offset + bytes[i]) break;
      offset = std::max(offset, packing.offsets[other] + bytes[other]);
    }
    packing.offsets[i] = offset;
    packing.size = std::max(packing.size, offset + bytes[i]);
    const auto at = std::ranges::upper_bound(done, offset, {}, [&](std::size_t d) { return packing.offsets[d]; });
    done.insert(at, i);
  }
  return packing;
}

// A run of steps, first to last, in which a value is in use.
struct Lifetime {
  int first = 0;
  int last = 0;
  bool meets(const Lifetime& other) const { return first <= other.last && other.first <= last; }
};

// Values of one pass that share one place.
struct Place {
  Home home = Home::kWorkspace;
  int saved = -1;
  Lifetime lifetime = {};
  std::vector<const FlowValue*> values = {};  // none: joined with another
  Bytes offset = {};
};

class PassPlacement {
 public:
  PassPlacement(const UnitProgram& unit, const std::vector<FlowValue>& values, std::vector<FlowStep> steps,
                std::set<std::string> read_later, const Sizes& sizes)
      : unit_(unit), steps_(std::move(steps)), read_later_(std::move(read_later)), sizes_(sizes) {
    for (const FlowValue& value : values) values_[value.name] = &value;
  }

  PassProgram make() {
    find_lifetimes();
    for (const auto& [name, lifetime] : lifetimes_) make_place(name, lifetime);
    share();
    PassProgram program{.steps = {}, .places = workspace_places(), .workspace = {}};
    const Packing packing = pack(program.places, sizes_);
    program.workspace = packing.size;
    std::size_t packed = 0;
    for (Place& place : places_) {
      if (place.home == Home::kWorkspace && !place.values.empty()) place.offset = packing.offsets[packed++];
    }
    for (const FlowStep& step : steps_) {
      PlacedStep placed{.step = step};
      for (const std::string& name : step.reads) placed.reads.push_back(at(name));
      for (const std::string& name : step.writes) placed.writes.push_back(at(name));
      const Extent scratch = scratch_of(step);
      if (scratch.rows > 0) {
        placed.scratch = {.name = "scratch", .rows = scratch.rows, .columns = scratch.columns, .statistics = true};
        placed.scratch.offset = packing.offsets[packed++];
      }
      program.steps.push_back(std::move(placed));
    }
    return program;
  }

 private:
  const FlowValue& value(const std::string& name) const {
    const auto found = values_.find(name);
    TRIREME_CHECK(found != values_.end(), "no value {}", name);
    return *found->second;
  }
  PlacedValue shape(const std::string& name) const {
    const FlowValue& v = value(name);
    PlacedValue placed{.name = name, .statistics = v.statistics, .blocks = v.blocks};
    if (is_of_loss(v)) {
      placed.columns = v.columns;
      placed.loss = name == model::kRowMaxima ? LossValue::kRowMaxima
                    : name == model::kRowSums ? LossValue::kRowSums
                    : name == model::kLosses  ? LossValue::kLosses
                                              : LossValue::kLogits;
      return placed;
    }
    const Extent extent = sizes_.extent(v);
    placed.rows = extent.rows;
    placed.columns = extent.columns;
    return placed;
  }
  Extent scratch_of(const FlowStep& step) const {
    return step.reads.empty() ? Extent{} : sizes_.scratch(step.op, value(step.reads.front()));
  }
  // Those of values in the order of places_, then the steps' scratch.
  std::vector<WorkspacePlace> workspace_places() const {
    std::vector<WorkspacePlace> places;
    for (const Place& place : places_) {
      if (place.home != Home::kWorkspace || place.values.empty()) continue;
      WorkspacePlace& made = places.emplace_back();
      made.first = place.lifetime.first;
      made.last = place.lifetime.last;
      for (const FlowValue* value : place.values) made.values.push_back(*value);
    }
    for (int i = 0; i < static_cast<int>(steps_.size()); ++i) {
      const FlowStep& step = steps_[static_cast<std::size_t>(i)];
      if (scratch_of(step).rows == 0) continue;
      places.push_back({.first = i, .last = i, .values = {value(step.reads.front())}, .scratch_of = step.op});
    }
    return places;
  }
  static bool is_of_loss(const FlowValue& v) {
    return v.name == model::kRowMaxima || v.name == model::kRowSums || v.name == model::kLosses || is_vocabulary(v);
  }
  static bool is_vocabulary(const FlowValue& v) {
    return !v.blocks.empty() && v.blocks.front().kind == model::PieceKind::kVocabulary;
  }
  void find_lifetimes() {
    const auto blocks = block_range();
    for (int i = 0; i < static_cast<int>(steps_.size()); ++i) {
      const FlowStep& step = steps_[static_cast<std::size_t>(i)];
      for (const auto* names : {&step.reads, &step.writes}) {
        for (const std::string& name : *names) {
          Lifetime& lifetime = lifetimes_.try_emplace(name, Lifetime{i, i}).first->second;
          lifetime.last = i;
        }
      }
    }
    // What is read or written block by block is in use through all of them.
    for (auto& [name, lifetime] : lifetimes_) {
      if (!lifetime.meets(blocks)) continue;
      exact_[name] = lifetime;
      lifetime = {std::min(lifetime.first, blocks.first), std::max(lifetime.last, blocks.last)};
    }
  }
  Lifetime block_range() const {
    Lifetime range{static_cast<int>(steps_.size()), -1};
    for (int i = 0; i < static_cast<int>(steps_.size()); ++i) {
      if (!steps_[static_cast<std::size_t>(i)].by_block) continue;
      range = {std::min(range.first, i), i};
    }
    return range;
  }

  void make_place(const std::string& name, const Lifetime& lifetime) {
    Place place{.lifetime = lifetime, .values = {&value(name)}};
    const auto saved =
        std::ranges::find(unit_.saved, name, [](const model::SavedActivation& s) { return s.value.name; });
    const auto is = [&](int index) {
      return index >= 0 && unit_.flow.values[static_cast<std::size_t>(index)].name == name;
    };
    if (is_of_loss(value(name))) {
      place.home = Home::kLoss;
    } else if (saved != unit_.saved.end()) {
      place.home = Home::kSaved;
      place.saved = static_cast<int>(saved - unit_.saved.begin());
    } else if (is(unit_.flow.output)) {
      place.home = Home::kOutput;
    } else if (unit_.flow.input >= 0 &&
               name == model::gradient_name(unit_.flow.values[static_cast<std::size_t>(unit_.flow.input)].name)) {
      place.home = Home::kInputGradient;
    }
    places_.push_back(place);
    place_of_[name] = static_cast<int>(places_.size()) - 1;
  }

  Place& place(const std::string& name) { return places_[static_cast<std::size_t>(place_of_.at(name))]; }
  bool is_local(const std::string& name) { return place(name).home == Home::kWorkspace; }
  bool same_shape(const std::string& a, const std::string& b) const {
    const PlacedValue x = shape(a), y = shape(b);
    return x.rows == y.rows && x.columns == y.columns && x.statistics == y.statistics;
  }

  // Later steps first, so that a chain of values ends up where its last one lies.
  void share() {
    for (int i = static_cast<int>(steps_.size()) - 1; i >= 0; --i) {
      const FlowStep& step = steps_[static_cast<std::size_t>(i)];
      for (const Sharing& sharing : sharing_of(step.op)) {
        if (sharing.read < step.reads.size() && share(i, step.reads[sharing.read], step.writes[sharing.write])) break;
      }
      if (step.op == FlowOp::kReduceScatter && is_local(step.writes.front()))
        join(step.writes.front(), step.reads.front());
    }
    share_blocks();
    // What a step makes of a value that nobody reads after it may overwrite that, wherever it is.
    for (int i = 0; i < static_cast<int>(steps_.size()); ++i) {
      const FlowStep& step = steps_[static_cast<std::size_t>(i)];
      for (const Sharing& sharing : sharing_of(step.op)) {
        if (sharing.read >= step.reads.size()) continue;
        const std::string &from = step.reads[sharing.read], &to = step.writes[sharing.write];
        if (!is_local(to) || place_of_[from] == place_of_[to] || lifetimes_[to].first != i) continue;
        if (place(from).lifetime.last > i || read_later_.contains(from) || !same_shape(from, to)) continue;
        if (!value(from).name.ends_with(" gradient")) continue;  // forward's values are others' too
        join(to, from);
        break;
      }
    }
  }
  // `from`, read for the last time by step i, into the place of `to`, which is made there.
  bool share(int i, const std::string& from, const std::string& to) {
    if (from == to || !is_local(from) || place_of_[from] == place_of_[to] || !same_shape(from, to)) return false;
    if (lifetimes_[from].last != i || place(from).lifetime.last != i || place(to).lifetime.first != i) return false;
    if (is_scattered(from)) return false;  // lies in its parts
    join(from, to);
    return true;
  }
  bool is_scattered(const std::string& name) const {
    return std::ranges::any_of(
        steps_, [&](const FlowStep& step) { return step.op == FlowOp::kReduceScatter && step.writes.front() == name; });
  }
  // A block of rows of `to` is written when that of `from` has been read for the last time: head.
  void share_blocks() {
    for (int i = 0; i < static_cast<int>(steps_.size()); ++i) {
      const FlowStep& step = steps_[static_cast<std::size_t>(i)];
      if (!step.by_block || step.writes.empty() || !is_local(step.writes.front())) continue;
      for (const auto& [name, exact] : exact_) {
        const bool gathered = value(name).all_rows && is_local(name) && name != step.writes.front();
        if (!gathered || exact.last >= i || !same_shape(name, step.writes.front())) continue;
        return join(name, step.writes.front());
      }
    }
  }
  void join(const std::string& name, const std::string& with) {
    const int from = place_of_.at(name), to = place_of_.at(with);
    Place &a = places_[static_cast<std::size_t>(from)], &b = places_[static_cast<std::size_t>(to)];
    b.lifetime = {std::min(a.lifetime.first, b.lifetime.first), std::max(a.lifetime.last, b.lifetime.last)};
    b.values.insert(b.values.end(), a.values.begin(), a.values.end());
    a.values.clear();
    for (auto& [other, place] : place_of_) {
      if (place == from) place = to;
    }
  }

  PlacedValue at(const std::string& name) {
    PlacedValue placed = shape(name);
    const Place& where = place(name);
    placed.home = where.home;
    placed.saved = where.saved;
    placed.offset = where.offset;
    placed.in_parts = where.home == Home::kWorkspace && is_scattered(name);
    return placed;
  }

  const UnitProgram& unit_;
  std::vector<FlowStep> steps_;
  std::set<std::string> read_later_;  // in passes to come
  const Sizes& sizes_;
  std::map<std::string, const FlowValue*> values_;
  std::map<std::string, Lifetime> lifetimes_;
  std::map<std::string, Lifetime> exact_;  // by step, of those in use in a loop over blocks
  std::map<std::string, int> place_of_;
  std::vector<Place> places_;
};

}  // namespace

UnitProgram make_unit_program(const model::Config& config, const model::UnitFlow& flow, const Layout& layout,
                              const Batch& batch, const RunInputs& inputs) {
  UnitProgram unit{.flow = flow, .saved = model::saved_activations(flow), .passes = {}};
  for (std::size_t i = 0; i < unit.saved.size(); ++i) {
    if (unit.saved[i].given) (unit.saved[i].gradient ? unit.output_gradient : unit.input) = static_cast<int>(i);
  }
  const model::FlowSteps bound = bind_flow(flow, layout);
  const Sizes sizes{config, batch, inputs, local_widths(config, layout, batch)};
  for (int p = 0; p < model::kFlowPassCount; ++p) {
    std::vector<FlowStep> steps;
    std::set<std::string> later;
    for (const FlowStep& step : bound.steps) {
      if (static_cast<int>(step.pass) > p) later.insert(step.reads.begin(), step.reads.end());
      if (static_cast<int>(step.pass) != p) continue;
      steps.push_back(step);
    }
    unit.passes[static_cast<std::size_t>(p)] =
        PassPlacement(unit, bound.values, std::move(steps), std::move(later), sizes).make();
  }
  return unit;
}

std::vector<UnitProgram> make_unit_programs(const model::Config& config, const Layout& layout, const Batch& batch,
                                            const RunInputs& inputs) {
  std::vector<UnitProgram> units;
  for (const model::UnitFlow& flow : model::flows_by_class(config)) {
    units.push_back(make_unit_program(config, flow, layout, batch, inputs));
  }
  return units;
}

Bytes workspace_of(const UnitProgram& unit) {
  Bytes most;
  for (const PassProgram& pass : unit.passes) most = std::max(most, pass.workspace);
  return most;
}

Bytes workspace_of(const UnitProgram& unit, const model::Config& config, const Layout& layout, const Batch& batch,
                   const RunInputs& inputs) {
  const Sizes sizes{config, batch, inputs, local_widths(config, layout, batch)};
  Bytes most;
  for (const PassProgram& pass : unit.passes) most = std::max(most, pack(pass.places, sizes).size);
  return most;
}

}  // namespace trireme::plan
