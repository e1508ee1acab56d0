#include "planner/rank_memory.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "model/operation_cost.h"
#include "plan/schedule_order.h"
#include "plan/unit_program.h"
#include "plan/workspace.h"

namespace trireme::planner {
namespace {

using model::ActivationGroup;
using model::Recompute;

double real(std::int64_t value) { return static_cast<double>(value); }
double rounded(double bytes) { return std::ceil(bytes / kAllocationAlignment) * kAllocationAlignment; }

plan::Layout tensor_layout(int tp, bool sequence_parallel) {
  plan::Layout layout;
  layout.tp = tp;
  layout.sequence_parallel = sequence_parallel;
  return layout;
}

// Sums of what the engine keeps of a unit by group, each buffer rounded as the arena rounds it.
std::array<double, model::kActivationGroupCount> group_bytes(const Problem& problem, const model::LocalWidths& widths,
                                                             const ModelUnits::Unit& unit, Recompute recompute) {
  std::array<double, model::kActivationGroupCount> groups{};
  for (const model::SavedActivation& entry : unit.saved) {
    const model::ActivationShape shape = model::local_shape(entry.value, widths);
    const double element = entry.value.statistics ? problem.element.state : problem.element.weight;
    groups[static_cast<std::size_t>(model::group_of(entry, recompute))] +=
        rounded(real(shape.rows) * real(shape.columns) * element);
  }
  return groups;
}

UnitBuffers engine_unit(const Problem& problem, const model::LocalWidths& widths, const ModelUnits::Unit& unit,
                        Recompute recompute) {
  const auto groups = group_bytes(problem, widths, unit, recompute);
  const auto of = [&](ActivationGroup group) { return groups[static_cast<std::size_t>(group)]; };
  return {.kept = of(ActivationGroup::kInput) + of(ActivationGroup::kInputForWeight) + of(ActivationGroup::kKept) +
                  of(ActivationGroup::kKeptForWeight),
          .pending = of(ActivationGroup::kInputForWeight) + of(ActivationGroup::kKeptForWeight) +
                     of(ActivationGroup::kRemadeForWeight) + of(ActivationGroup::kOutputGradient) +
                     of(ActivationGroup::kGradient),
          .backward = of(ActivationGroup::kRemade) + of(ActivationGroup::kRemadeForWeight) +
                      of(ActivationGroup::kGradient) + of(ActivationGroup::kOutputGradient),
          .output_gradient = of(ActivationGroup::kOutputGradient)};
}

double activated_columns(const model::UnitFlow& flow, int tp) {
  for (const model::Operation& operation : flow.operations) {
    if (operation.kind != model::OperationKind::kActivation) continue;
    return model::local_columns(flow.values[static_cast<std::size_t>(operation.writes.front())], tp);
  }
  return 0.0;
}

ActivationBuffers megatron_buffers(const Problem& problem, const ModelUnits::Unit& unit, int tp, bool sequence_parallel,
                                   std::int64_t micro_batch, Recompute recompute) {
  const FrameworkConstants& f = problem.framework;
  const double element = problem.element.weight / 2.0;  // the set's bytes are of 16-bit elements
  const auto layer = [&](Recompute kind) {
    return element * megatron_layer_bytes(unit, micro_batch, problem.sequence, tp, sequence_parallel, kind,
                                          f.fused_attention, f.dropout);
  };
  const double tokens = real(micro_batch * problem.sequence);
  const double hidden = 2.0 * element * tokens * real(problem.config.hidden) / (sequence_parallel ? tp : 1);
  const double scale = f.activation_scale;
  ActivationBuffers buffers;
  buffers.boundary = hidden;
  // A full recompute keeps the input alone; the others scale with how much a layer's operations are fused.
  buffers.layer.kept = recompute == Recompute::kFull ? layer(recompute) : scale * layer(recompute);
  buffers.layer.backward = scale * layer(Recompute::kNone) - buffers.layer.kept +
                           2.0 * element * tokens * activated_columns(unit.flow, tp) + hidden;
  buffers.layer.pending = buffers.layer.kept;
  buffers.layer.output_gradient = hidden;
  buffers.embedding.output_gradient = hidden;
  buffers.head.kept = 2.0 * hidden;
  return buffers;
}

}  // namespace

// Megatron keeps what the flow's backward reads, in 16 bits, but for the norms' statistics; and a mask of a byte for
// each dropout. Attention that is not fused keeps its scores instead of their log-sum-exp.
double megatron_layer_bytes(const ModelUnits::Unit& unit, std::int64_t micro_batch, std::int64_t sequence, int tp,
                            bool sequence_parallel, Recompute recompute, bool fused_attention, bool dropout) {
  const double tokens = real(micro_batch * sequence), sequence_part = sequence_parallel ? tp : 1;
  const model::UnitFlow& flow = unit.flow;
  double bytes = 0;
  for (const model::SavedActivation& saved : unit.saved) {
    if (saved.gradient || saved.value.statistics) continue;
    if (recompute == Recompute::kFull && !saved.given) continue;
    const double columns = model::local_columns(saved.value, tp);
    bytes += 2.0 * tokens * columns / (saved.value.in_stream() ? sequence_part : 1);
  }
  if (recompute == Recompute::kFull) return bytes;
  for (const model::Operation& operation : flow.operations) {
    if (operation.kind == model::OperationKind::kAdd && dropout) {
      bytes += tokens * model::local_columns(flow.values[static_cast<std::size_t>(operation.writes.front())], tp) /
               sequence_part;
    }
    if (operation.kind != model::OperationKind::kAttention) continue;
    const double head_tokens = tokens * model::operation_cost(flow, operation, tp).heads;
    if (fused_attention) {
      bytes += 4.0 * head_tokens;  // log-sum-exp
    } else if (recompute == Recompute::kNone) {
      bytes += (dropout ? 5.0 : 2.0) * head_tokens * real(sequence);  // softmax; dropout's mask and output
    }
  }
  return bytes;
}

ActivationBuffers activation_buffers(const Problem& problem, const ModelUnits& units, int tp, bool sequence_parallel,
                                     std::int64_t micro_batch, Recompute recompute) {
  if (problem.framework.activations == ActivationSet::kMegatron) {
    return megatron_buffers(problem, units.layers().front(), tp, sequence_parallel, micro_batch, recompute);
  }
  const model::LocalWidths widths =
      plan::local_widths(problem.config, tensor_layout(tp, sequence_parallel), problem.batch(micro_batch));
  return {.embedding = engine_unit(problem, widths, units.embedding(), recompute),
          .layer = engine_unit(problem, widths, units.layers().front(), recompute),
          .head = engine_unit(problem, widths, units.head(), recompute),
          .boundary = rounded(real(widths.sequence_tokens) * real(problem.config.hidden) * problem.element.weight)};
}

FixedBuffers fixed_buffers(const Problem& problem, ModelUnits& units, int tp, bool sequence_parallel,
                           std::int64_t micro_batch) {
  const plan::Batch batch = problem.batch(micro_batch);
  const plan::Layout layout = tensor_layout(tp, sequence_parallel);
  const double tokens = real(micro_batch * problem.sequence);
  FixedBuffers fixed{.tokens = tokens * real(dtype_size(DType::kI32))};
  if (problem.framework.activations == ActivationSet::kMegatron) {
    const double vocabulary = real(round_up(problem.config.vocabulary, problem.framework.vocabulary_multiple));
    fixed.head_logits = problem.framework.logit_bytes * tokens * vocabulary / tp;
    return fixed;
  }
  const double state = problem.element.state;
  const double rows = real(plan::logit_rows(batch));
  fixed.logits = rounded(rows * real(divide_up(problem.config.vocabulary, tp)) * state) + rounded(3 * rows * state) +
                 rounded(tokens * state);
  const Bytes most = std::max(plan::norm_scratch_bytes(), units.workspace(problem, layout, batch));
  fixed.workspace = real(plan::workspace_bytes(problem.config, batch, problem.inputs, most).count);
  return fixed;
}

namespace {

// State of a unit under ZeRO, in bytes, each flat buffer rounded.
void add_state(MemoryEstimate& memory, const Problem& problem, const StateChoice& choice, std::int64_t elements,
               int units, bool weights, bool moments) {
  if (elements == 0 || units == 0) return;
  const double whole = real(padded_elements(elements, choice.dp));
  const double shard = whole / choice.dp;
  const double state = problem.element.state;
  const bool gradients_sharded = choice.zero >= 2 && choice.reduce_each_micro_batch;
  const double gradient = problem.element.gradient;
  if (weights) {
    memory[MemoryClass::kWeights] += units * rounded((choice.zero == 3 ? shard : whole) * problem.element.weight);
  }
  memory[MemoryClass::kGradients] += units * rounded((gradients_sharded ? shard : whole) * gradient);
  if (!moments) return;
  const double owned = rounded((choice.zero >= 1 ? shard : whole) * state);
  if (plan::has_master_weights(problem.inputs)) memory[MemoryClass::kMasterWeights] += units * owned;
  memory[MemoryClass::kMoments] += units * 2 * owned;
}

// One moment of a step: what is held beside the buffers that stay.
struct Moment {
  double activations = 0;
  double gathered = 0;
  double gradients = 0;
  double logits = 0;
  double boundary = 0;
  double sum() const { return activations + gathered + gradients + logits + boundary; }
};

class Moments {
 public:
  Moments(const Problem& problem, const UnitElements& elements, const ActivationBuffers& activations,
          const FixedBuffers& fixed, const StageShape& stage, const StateChoice& state, const InFlight& flight)
      : problem_(problem),
        elements_(elements),
        a_(activations),
        fixed_(fixed),
        stage_(stage),
        state_(state),
        flight_(flight),
        layer_gather_(gather(elements.layer)),
        layer_open_(open(elements.layer)) {}

  Moment largest() {
    for (int i = 0; i < flight_.moments; ++i) {
      const Held& held = flight_.held[static_cast<std::size_t>(i)];
      early_ = i == 0 ? flight_.inputs * a_.boundary : 0.0;
      const bool steady = interleaved() && real(flight_.micro_batches) > held.whole;
      sent_backward_ = state_.pp > 1 && (steady || (i > 0 && !stage_.embedding));
      if (stage_.head) offer(held, head());
      // At the backward of the chunk's last layer all of the chunk is still there.
      offer(held, decoder(0));
      const int last = stage_.last_chunk_layers - 1;
      if (flight_.split_backward && last > 0) {
        offer(held, decoder(std::max(0, last - state_.prefetch)));
        offer(held, decoder(last));
      }
      if (!stage_.embedding) continue;
      offer(held, embedding_forward());
      offer(held, embedding_backward());
    }
    if (stage_.embedding && state_.pp > 1) offer(end_of_step());
    return best_;
  }

 private:
  // `moment`: of the micro-batch at hand, against all its layers kept.
  void offer(const Held& held, Moment moment) {
    if (sent_backward_ && moment.boundary == 0) moment.boundary = a_.boundary;
    moment.boundary += sent_forward();
    moment.activations += early_ + stage_.layers * (held.whole * a_.layer.kept + held.pending * a_.layer.pending);
    if (stage_.embedding) moment.activations += held.pending * a_.embedding.pending;
    if (stage_.head) moment.activations += (flight_.heads - 1) * a_.head.kept;
    moment.gradients += held.pending * stage_.layers * layer_open_;
    offer(moment);
  }
  void offer(const Moment& moment) {
    if (moment.sum() > best_.sum()) best_ = moment;
  }

  // What the last forward has sent stays until the next is made.
  double sent_forward() const { return state_.pp > 1 && (!stage_.head || interleaved()) ? a_.boundary : 0.0; }
  bool interleaved() const { return stage_.last_chunk_layers < stage_.layers; }

  // Backward of the layer that has `done` layers of its chunk behind it (whose weight passes wait).
  Moment decoder(int done) const {
    Moment moment{.activations = a_.layer.backward + done * (a_.layer.pending - a_.layer.kept)};
    const int left = stage_.last_chunk_layers - done;
    if (left > 1) {
      moment.activations += a_.layer.output_gradient;
    } else if (stage_.embedding) {
      moment.activations += a_.embedding.output_gradient;
    } else {
      moment.boundary = a_.boundary;
    }
    moment.gathered = std::min(left, 1 + state_.prefetch) * layer_gather_;
    moment.gradients = (1 + done) * layer_open_;
    return moment;
  }
  Moment head() const {
    Moment moment{.activations = a_.head.kept + a_.head.backward + a_.layer.output_gradient,
                  .logits = fixed_.head_logits};
    const bool tied = elements_.tied_head > 0;
    const int layers = std::min(stage_.last_chunk_layers, state_.prefetch);
    moment.gathered = gather(elements_.head) + layers * layer_gather_;
    if (tied) moment.gathered += gather(elements_.embedding);
    moment.gradients = open(elements_.head) + (tied ? open(tied_unit_elements(elements_, state_.dp)) : 0.0);
    return moment;
  }
  // Its weights gathered, for the last of the forwards.
  Moment embedding_forward() const {
    return {
        .activations = a_.boundary - stage_.layers * a_.layer.kept,
        .gathered = gather(elements_.embedding) + std::min(stage_.last_chunk_layers, state_.prefetch) * layer_gather_};
  }
  // The gradient of the embedding, when the chunk's layers are done.
  Moment embedding_backward() const {
    return {.activations = a_.embedding.output_gradient - stage_.last_chunk_layers * a_.layer.kept,
            .gradients = open(elements_.embedding)};
  }
  // The gradient of the other copy of a tied embedding arrives.
  Moment end_of_step() const {
    const double share = state_.zero >= 1 ? state_.dp : 1;
    return {.boundary = rounded(real(elements_.tied_head) / share * problem_.element.gradient)};
  }
  double gather(std::int64_t elements) const {
    if (state_.zero < 3 || state_.dp == 1) return 0.0;
    return rounded(real(padded_elements(elements, state_.dp)) * problem_.element.weight);
  }
  double open(std::int64_t elements) const {
    if (!state_.reduce_each_micro_batch || state_.dp == 1) return 0.0;
    return rounded(real(padded_elements(elements, state_.dp)) * problem_.element.gradient);
  }

  const Problem& problem_;
  const UnitElements& elements_;
  const ActivationBuffers& a_;
  const FixedBuffers& fixed_;
  const StageShape& stage_;
  const StateChoice& state_;
  const InFlight& flight_;
  double layer_gather_;
  double layer_open_;
  bool sent_backward_ = false;  // the gradient of the last backward is still there
  double early_ = 0;
  Moment best_;
};

void finish(MemoryEstimate& memory, const FrameworkConstants& framework) {
  memory.ledger = 0;
  for (double bytes : memory.by_class) memory.ledger += bytes;
  memory.context = real(framework.context.count);
  memory.fragmentation = framework.fragmentation * memory.ledger;
}

}  // namespace

InFlight in_flight(plan::ScheduleKind schedule, int pp, int interleave, std::int64_t micro_batches, int stage) {
  const int m = static_cast<int>(micro_batches);
  InFlight flight{.micro_batches = micro_batches};
  if (schedule == plan::ScheduleKind::kGpipe) flight.heads = m;
  if (schedule != plan::ScheduleKind::kZeroBubbleH1) {
    flight.held[0].whole = static_cast<double>(plan::in_flight_bound(schedule, pp, interleave, m, stage)) / interleave;
    if (stage > 0 && m > flight.held[0].whole) flight.inputs = 1;
    return flight;
  }
  // At backward i: forwards are warm_up ahead of it, weight passes `stage` behind. The sum is linear between these.
  const int warm_up = std::min(m, pp - 1 - stage);
  const int moments[] = {0, std::clamp(m - 1 - warm_up, 0, stage), std::min(stage, m - 1)};
  flight.moments = 0;
  for (int i : moments) {
    if (flight.moments > 0 && i == moments[flight.moments - 1]) continue;
    flight.held[static_cast<std::size_t>(flight.moments++)] = {.whole = std::min<double>(m, warm_up + i + 1) - i,
                                                               .pending = static_cast<double>(std::min(i, stage))};
  }
  if (stage > 0 && m > flight.held[0].whole) flight.inputs = 1;
  flight.split_backward = true;
  return flight;
}

double interleaved_layers(int pp, std::int64_t micro_batches, int stage, std::span<const int> chunk_layers) {
  const auto v = static_cast<std::int64_t>(chunk_layers.size());
  const std::int64_t total = micro_batches * v;
  // Of the first n forwards (or backwards, from the last chunk on) how many are of the c-th chunk.
  const auto of_chunk = [&](std::int64_t n, std::int64_t c) {
    return n / (pp * v) * pp + std::clamp<std::int64_t>(n % (pp * v) - c * pp, 0, pp);
  };
  const std::int64_t ahead = plan::in_flight_bound(plan::ScheduleKind::kInterleaved, pp, static_cast<int>(v),
                                                   static_cast<int>(micro_batches), stage);
  std::int64_t most = 0;
  const auto at_backward = [&](std::int64_t k) {
    if (k < 0 || k > total - ahead) return;
    std::int64_t layers = 0;
    for (std::int64_t c = 0; c < v; ++c) {
      layers += (of_chunk(ahead + k, c) - of_chunk(k, v - 1 - c)) * chunk_layers[static_cast<std::size_t>(c)];
    }
    most = std::max(most, layers);
  };
  // Linear between where forwards or backwards go over to another chunk; the same after each round of all chunks.
  for (std::int64_t at = 0; at <= v * pp; at += pp) {
    at_backward(at);
    at_backward(at + pp - ahead % pp);
  }
  return real(most);
}

MemoryEstimate stage_memory(const Problem& problem, const UnitElements& elements, const ActivationBuffers& activations,
                            const FixedBuffers& fixed, const StageShape& stage, const StateChoice& state,
                            const InFlight& in_flight) {
  MemoryEstimate memory;
  add_state(memory, problem, state, elements.layer, stage.layers, true, true);
  const bool engine = problem.framework.activations == ActivationSet::kTrireme;
  // Ids, or targets: of a step, and of one validation micro-batch.
  const double tokens = rounded(fixed.tokens * real(in_flight.micro_batches)) +
                        (problem.inputs.evaluation_micro_batches > 0 ? rounded(fixed.tokens) : 0.0);
  if (stage.embedding) add_state(memory, problem, state, elements.embedding, 1, true, true);
  if (stage.head) {
    add_state(memory, problem, state, elements.head, 1, true, true);
    if (engine || state.pp > 1) {
      add_state(memory, problem, state, tied_unit_elements(elements, state.dp), 1, state.pp > 1, false);
    }
    memory[MemoryClass::kLogitsAndLoss] += fixed.logits;
    memory[MemoryClass::kTokenBatch] += tokens;
  }
  if (stage.embedding) memory[MemoryClass::kTokenBatch] += tokens;
  memory[MemoryClass::kWorkspace] += fixed.workspace;

  const Moment moment = Moments(problem, elements, activations, fixed, stage, state, in_flight).largest();
  memory[MemoryClass::kSavedActivations] = moment.activations;
  memory[MemoryClass::kGatheredParameters] = moment.gathered;
  memory[MemoryClass::kGradients] += moment.gradients;
  memory[MemoryClass::kLogitsAndLoss] += moment.logits;
  memory[MemoryClass::kCommunicationBuffers] = moment.boundary;
  finish(memory, problem.framework);
  return memory;
}

}  // namespace trireme::planner
