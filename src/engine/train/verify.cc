#include "engine/train/verify.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "engine/train/rounding_error.h"
#include "engine/train/run_checks.h"
#include "engine/train/update_oracle.h"

namespace trireme::train {
namespace {

constexpr double kFloor = 1e-6;      // of the global norm
constexpr double kNormBound = 1e-9;  // a norm is summed exactly, of squares that are in double
constexpr double kTiny = 1e-30;
// The loss scale leaves so much room above the reference's largest gradient, that no healthy layout's overflows.
constexpr double kRoom = 4;
constexpr double kLargestF16 = 65504;

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  using Bits = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
  return std::ranges::equal(a, b, [](T x, T y) { return std::bit_cast<Bits>(x) == std::bit_cast<Bits>(y); });
}
bool same_bits(double a, double b) { return same_bits<double>({a}, {b}); }

template <class T>
double norm(const std::vector<T>& values) {
  double sum = 0;
  for (T v : values) sum += static_cast<double>(v) * static_cast<double>(v);
  return std::sqrt(sum);
}

// What is no number is infinitely far.
double finite(double difference) {
  return std::isfinite(difference) ? difference : std::numeric_limits<double>::infinity();
}

template <class T>
double distance(const std::vector<T>& a, const std::vector<T>& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    sum += difference * difference;
  }
  return finite(std::sqrt(sum));
}

double largest_scaled(const StepValues& values) {
  double largest = 0;
  for (const auto& [name, tensor] : values.tensors) {
    for (double gradient : tensor.gradient) largest = std::max(largest, std::abs(gradient));
  }
  return largest * values.loss_scale;
}

ResolvedRun with_layout(const ResolvedRun& run, const plan::Layout& layout, DType compute) {
  ResolvedRun other = run;
  other.config.layout = layout;
  other.config.memory_limit = {};  // of the run's own layout, which is checked by itself
  plan::RunInputs inputs = run.plan.inputs;
  inputs.compute = compute;
  inputs.evaluation_micro_batches = 0;
  inputs.threads = compute == DType::kF64 ? 1 : inputs.threads;
  other.plan = parallel::make_run_plan(run.plan.table.config, layout, run.config.batch, inputs, 0);
  return other;
}

// Law 2: pipelines, schedules, recompute, ZeRO and buckets keep every bit; sums over data or tensor ranks do not in
// ordered mode, and those that another algorithm forms over more than two replicas never.
bool promises_bits(const plan::Layout& a, const plan::Layout& b) {
  const auto canonical = [](const plan::Layout& l) { return l.all_reduce == ReduceAlgorithm::kOrdered || l.dp <= 2; };
  return canonical(a) && canonical(b) && a.dp == b.dp && a.tp == b.tp && a.sequence_parallel == b.sequence_parallel &&
         a.reduce == b.reduce;
}

// Layouts that differ from the reference along one axis of the target alone.
std::vector<std::pair<std::string, plan::Layout>> single_axes(const plan::Layout& reference,
                                                              const plan::Layout& target) {
  std::vector<std::pair<std::string, plan::Layout>> all;
  if (target.tp != reference.tp) {
    plan::Layout layout = reference;
    layout.tp = target.tp;
    layout.sequence_parallel = target.sequence_parallel;
    all.emplace_back("tensor", layout);
  }
  if (target.dp != reference.dp) {
    plan::Layout layout = reference;
    layout.dp = target.dp;
    layout.zero = target.zero;
    layout.reduce = target.reduce;
    layout.prefetch = target.prefetch;
    layout.bucket = target.bucket;
    layout.overlap = target.overlap;
    layout.all_reduce = target.all_reduce;
    all.emplace_back("data", layout);
  }
  if (target.pp != reference.pp) {
    plan::Layout layout = reference;
    layout.pp = target.pp;
    layout.interleave = target.interleave;
    layout.schedule = target.schedule;
    all.emplace_back("pipeline", layout);
  }
  return all;
}

// The one worst finding of each tensor's gradient, by difference over bound.
std::vector<Finding> worst_of(const std::vector<Finding>& findings) {
  std::vector<Finding> worst;
  for (const Finding& finding : findings) {
    if (finding.what != "gradient") continue;
    const auto known = std::ranges::find(worst, finding.tensor, &Finding::tensor);
    if (known == worst.end()) {
      worst.push_back(finding);
    } else if (finding.ratio() > known->ratio()) {
      *known = finding;
    }
  }
  std::ranges::stable_sort(worst, std::greater<>{}, &Finding::ratio);
  return worst;
}

class Verification {
 public:
  Verification(Env& env, Log& log, const ResolvedRun& run, const VerifyOptions& options)
      : env_(env), log_(log), options_(options), run_(run), compute_(run.plan.inputs.compute) {
    make_room();
    plan::Layout one;
    one.recompute = options.reference.recompute;
    exact_run_ = with_layout(run_, one, DType::kF64);
    reference_run_ = with_layout(run_, options.reference, compute_);
    reference_ = run_layout(env, log, reference_run_, {.steps = options.steps});
  }

  VerifyReport report() {
    const plan::Layout& target = run_.config.layout;
    VerifyReport report;
    report.bits_promised = promises_bits(options_.reference, target);
    LayoutCurve curve =
        run_layout(env_, log_, with_layout(run_, target, compute_), {.steps = options_.steps}, options_.target_hooks);
    std::optional<Finding> first = first_other_bits(curve);
    if (first) {
      Judged judged = judge(curve, options_.steps);
      report.verdict = Verdict::kWithinBound;
      report.worst = worst_of(judged.findings);
      if (!report.bits_promised) first = judged.first;
      if (first) {
        report.verdict = Verdict::kDifferent;
        set_bound(*first, judged.findings);
        report.first = first;
        report.axis = axis_of(first->step);
      }
      report.findings = std::move(judged.findings);
      reference_.steps = std::move(judged.reference);
    }
    for (StepValues& step : reference_.steps) step.tensors.clear();
    report.reference = std::move(reference_.steps);
    report.target = std::move(curve.steps);
    return report;
  }

 private:
  struct Judged {
    std::vector<Finding> findings;
    std::optional<Finding> first;       // beyond its bound
    std::vector<StepValues> reference;  // what it was compared with, without tensors
  };

  // A loss scale at which the reference's first gradients are far from overflowing.
  void make_room() {
    if (run_.config.precision != DType::kF16) return;
    optim::LossScalePolicy& policy = run_.config.loss_scale;
    while (policy.initial > 1) {
      const LayoutCurve curve =
          run_layout(env_, log_, with_layout(run_, options_.reference, compute_), {.gradients_only = true});
      const double largest = largest_scaled(curve.steps[0]);
      if (!curve.steps[0].left_out && largest <= kLargestF16 / kRoom) return;
      policy.initial /= 2;
    }
  }

  // Of the step that both curves have, in order: loss, gradients, norm, weights.
  Finding scalar(std::size_t s, const char* what, double reference, double target) const {
    Finding finding{.step = static_cast<int>(s) + 1, .what = what, .tensor = "", .unit = ""};
    finding.equal_bits = same_bits(reference, target);
    finding.difference = finite(std::abs(reference - target) / std::max(std::abs(reference), kTiny));
    return finding;
  }
  Finding tensor(std::size_t s, const char* what, const model::Parameter& parameter) const {
    return {.step = static_cast<int>(s) + 1,
            .what = what,
            .tensor = parameter.name,
            .unit = model::unit_name(table().config, parameter.unit)};
  }
  const model::ParameterTable& table() const { return run_.plan.table; }

  // Where the curve has other bits than the reference's.
  std::optional<Finding> first_other_bits(const LayoutCurve& curve) const {
    if (std::optional<Finding> finding = other_start(curve)) return finding;
    for (std::size_t s = 0; s < curve.steps.size(); ++s) {
      const StepValues &a = reference_.steps[s], &b = curve.steps[s];
      if (!same_bits(a.loss, b.loss)) return scalar(s, "loss", a.loss, b.loss);
      for (const model::Parameter& parameter : table().parameters) {
        const TensorValues &x = a.tensors.at(parameter.name), &y = b.tensors.at(parameter.name);
        if (same_bits(x.gradient, y.gradient)) continue;
        Finding finding = tensor(s, "gradient", parameter);
        finding.equal_bits = false;
        finding.difference = distance(x.gradient, y.gradient) / std::max(norm(x.gradient), kTiny);
        return finding;
      }
      if (!same_bits(a.grad_norm, b.grad_norm)) return scalar(s, "gradient norm", a.grad_norm, b.grad_norm);
      for (const model::Parameter& parameter : table().parameters) {
        const TensorValues &x = a.tensors.at(parameter.name), &y = b.tensors.at(parameter.name);
        if (same_bits(x.weight, y.weight) && same_bits(x.master, y.master)) continue;
        return weights(s, "weights", parameter, x, y);
      }
    }
    return std::nullopt;
  }

  Finding weights(std::size_t s, const char* what, const model::Parameter& parameter, const TensorValues& a,
                  const TensorValues& b) const {
    Finding finding = tensor(s, what, parameter);
    finding.equal_bits = same_bits(a.weight, b.weight) && same_bits(a.master, b.master);
    const bool master = same_bits(a.weight, b.weight);
    finding.difference = distance(master ? a.master : a.weight, master ? b.master : b.weight) /
                         std::max(norm(master ? a.master : a.weight), kTiny);
    return finding;
  }

  // All layouts begin with the same weights, bit for bit.
  std::optional<Finding> other_start(const LayoutCurve& curve) const {
    for (const model::Parameter& parameter : table().parameters) {
      const Finding finding =
          weights(0, "initial weights", parameter, reference_.start.at(parameter.name), curve.start.at(parameter.name));
      if (!finding.equal_bits) return finding;
    }
    return std::nullopt;
  }

  // Step by step until one has a finding beyond its bound: the reference, moved runs and float64 do the step from the
  // curve's own weights before it.
  Judged judge(const LayoutCurve& curve, int steps) {
    Judged judged;
    if ((judged.first = other_start(curve))) {
      judged.findings.push_back(*judged.first);
      judged.reference = reference_.steps;
      return judged;
    }
    UpdateOracle oracle(table(), run_.config);
    for (std::size_t s = 0; s < static_cast<std::size_t>(steps) && !judged.first; ++s) {
      const auto& before = s == 0 ? curve.start : curve.steps[s - 1].tensors;
      const std::size_t begin = judged.findings.size();
      StepValues reference = judge_gradients(s, before, curve.steps[s], judged.findings);
      judge_update(s, before, curve.steps[s], reference, oracle, judged.findings);
      reference.tensors.clear();
      judged.reference.push_back(std::move(reference));
      const auto found = std::find_if(judged.findings.begin() + static_cast<std::ptrdiff_t>(begin),
                                      judged.findings.end(), [](const Finding& f) { return !f.within(); });
      if (found != judged.findings.end()) judged.first = *found;
    }
    return judged;
  }

  // Loss and gradients from the same weights. Returns the reference's step.
  StepValues judge_gradients(std::size_t s, const std::map<std::string, TensorValues>& before, const StepValues& target,
                             std::vector<Finding>& findings) {
    reference_run_.config.loss_scale.initial = exact_run_.config.loss_scale.initial = target.loss_scale;
    const std::int64_t step = static_cast<std::int64_t>(s) + 1;
    StepValues reference =
        s == 0 ? reference_.steps[0]
               : std::move(run_layout(env_, log_, reference_run_,
                                      {.first = step, .weights = weights_of(before), .gradients_only = true})
                               .steps[0]);
    if (reference.left_out || (target.left_out && largest_scaled(reference) > kLargestF16 / kRoom)) {
      findings.push_back(scalar(s, "loss", reference.loss, target.loss));  // nothing else can be asked of it
      findings.back().bound = 1;
      return reference;
    }
    const ErrorRuns runs{reference_run_, exact_run_, reference, step, before};
    if (s > 0) {
      add_gradients(s, reference, target, measure_errors(env_, log_, runs), findings);
      return reference;
    }
    if (!first_errors_) first_errors_ = measure_errors(env_, log_, runs);
    add_gradients(s, reference, target, *first_errors_, findings);
    return reference;
  }

  void add_gradients(std::size_t s, const StepValues& reference, const StepValues& target, const StepErrors& errors,
                     std::vector<Finding>& findings) const {
    findings.push_back(scalar(s, "loss", reference.loss, target.loss));
    const double loss = std::max(std::abs(reference.loss), kTiny);
    findings.back().bound = std::max(errors.loss.largest() / loss, kFloor);
    const double global = UpdateOracle::norm_of(reference);
    for (const model::Parameter& parameter : table().parameters) {
      const std::vector<double>& a = reference.tensors.at(parameter.name).gradient;
      const std::vector<double>& b = target.tensors.at(parameter.name).gradient;
      const double scale = std::max(norm(a), kTiny);
      Finding finding = tensor(s, "gradient", parameter);
      finding.equal_bits = same_bits(a, b);
      finding.difference = distance(a, b) / scale;
      finding.bound = std::max(errors.gradients.at(parameter.name).largest(), kFloor * global) / scale;
      findings.push_back(finding);
    }
  }

  // The norm and the update of its own gradients.
  void judge_update(std::size_t s, const std::map<std::string, TensorValues>& before, const StepValues& target,
                    const StepValues& reference, UpdateOracle& oracle, std::vector<Finding>& findings) const {
    if (!target.left_out) {
      findings.push_back(scalar(s, "gradient norm", UpdateOracle::norm_of(target), target.grad_norm));
      findings.back().bound = kNormBound;
      findings.back().equal_bits = same_bits(reference.grad_norm, target.grad_norm);
    }
    const std::map<std::string, UpdateMiss> misses = oracle.next(static_cast<std::int64_t>(s) + 1, before, target);
    for (const model::Parameter& parameter : table().parameters) {
      Finding finding = tensor(s, "weights", parameter);
      finding.difference = misses.at(parameter.name).difference;
      finding.bound = misses.at(parameter.name).bound;
      finding.equal_bits = finding.difference == 0;
      findings.push_back(finding);
    }
  }

  static void set_bound(Finding& first, const std::vector<Finding>& findings) {
    for (const Finding& finding : findings) {
      if (finding.step == first.step && finding.what == first.what && finding.tensor == first.tensor) {
        first.bound = finding.bound;
      }
    }
  }

  // The axis that alone brings a difference in the first `steps` steps.
  std::string axis_of(int steps) {
    for (const auto& [axis, layout] : single_axes(options_.reference, run_.config.layout)) {
      if (!plan::check_layout(table().config, layout, run_.config.batch).ok()) continue;
      LayoutCurve alone;
      try {
        alone = run_layout(env_, log_, with_layout(run_, layout, compute_), {.steps = steps}, options_.target_hooks);
      } catch (const Error&) {
        return axis;  // the fault ends the run by itself
      }
      const std::optional<Finding> other = first_other_bits(alone);
      if (!other) continue;
      if (promises_bits(options_.reference, layout) || judge(alone, steps).first) return axis;
    }
    return "";
  }

  Env& env_;
  Log& log_;
  const VerifyOptions& options_;
  ResolvedRun run_;
  const DType compute_;
  ResolvedRun reference_run_, exact_run_;
  LayoutCurve reference_;
  std::optional<StepErrors> first_errors_;  // of step 1, which all curves do from the same weights
};

}  // namespace

std::string_view verdict_name(Verdict verdict) {
  return verdict == Verdict::kEqual ? "equal" : verdict == Verdict::kWithinBound ? "within bound" : "different";
}

double Finding::ratio() const {
  if (bound > 0) return difference / bound;
  return difference > 0 ? std::numeric_limits<double>::infinity() : 0;
}

VerifyReport verify(Env& env, Log& log, const ResolvedRun& run, const VerifyOptions& options) {
  const plan::Layout& target = run.config.layout;
  for (const plan::Layout& layout : {options.reference, target}) {
    check_memory(env, with_layout(run, layout, run.plan.inputs.compute), all_ranks(layout));
  }
  return Verification(env, log, run, options).report();
}

}  // namespace trireme::train
