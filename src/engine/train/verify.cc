#include "engine/train/verify.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace trireme::train {
namespace {

double norm(const std::vector<double>& values) {
  double sum = 0;
  for (double v : values) sum += v * v;
  return std::sqrt(sum);
}

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum);
}

bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  return std::ranges::equal(
      a, b, [](double x, double y) { return std::bit_cast<std::uint64_t>(x) == std::bit_cast<std::uint64_t>(y); });
}

constexpr double kFactor = 4.0;  // of the reference's own error
constexpr double kFloor = 1e-6;  // of the global norm

// Compares two runs of the same steps; `exact` (may be empty: bits are asked for) gives the reference's own error.
class Comparison {
 public:
  Comparison(const model::ParameterTable& table, const std::vector<StepValues>& reference,
             const std::vector<StepValues>& target, const std::vector<StepValues>& exact)
      : table_(table), reference_(reference), target_(target), exact_(exact) {}

  // In order: of each step the loss, the gradients in the order of the model, the norm, the weights.
  std::vector<Finding> all() const {
    std::vector<Finding> findings;
    const double of_loss = own_error_of_loss();
    for (std::size_t s = 0; s < reference_.size(); ++s) {
      findings.push_back(scalar(s, "loss", &StepValues::loss, of_loss));
      tensors(s, "gradient", &TensorValues::gradient, findings);
      findings.push_back(scalar(s, "gradient norm", &StepValues::grad_norm, own_error_of_norm(s)));
      tensors(s, "weights", &TensorValues::weight, findings);
    }
    return findings;
  }

 private:
  // The errors of a mean of many may cancel out in one step: the largest of all steps.
  double own_error_of_loss() const {
    double largest = 0;
    for (std::size_t s = 0; s < exact_.size(); ++s) {
      largest = std::max(largest, std::abs(reference_[s].loss - exact_[s].loss));
    }
    return largest;
  }
  // So may those of a norm: it moves by as much as the whole gradient does, at most.
  double own_error_of_norm(std::size_t s) const {
    if (exact_.empty()) return 0;
    double sum = 0;
    for (const auto& [name, values] : reference_[s].tensors) {
      sum += std::pow(distance(values.gradient, exact_[s].tensors.at(name).gradient), 2);
    }
    return std::sqrt(sum);
  }

  Finding scalar(std::size_t s, const char* what, double StepValues::*member, double own_error) const {
    const double a = reference_[s].*member, b = target_[s].*member;
    Finding finding{.step = static_cast<int>(s) + 1, .what = what, .tensor = "", .unit = ""};
    finding.equal_bits = std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
    finding.difference = std::abs(a - b) / std::max(std::abs(a), 1e-30);
    if (!exact_.empty()) finding.bound = std::max(kFactor * own_error / std::max(std::abs(a), 1e-30), kFloor);
    return finding;
  }

  void tensors(std::size_t s, const char* what, std::vector<double> TensorValues::*member,
               std::vector<Finding>& findings) const {
    double global = 0;
    for (const auto& [name, values] : reference_[s].tensors) global += std::pow(norm(values.*member), 2);
    global = std::sqrt(global);
    for (const model::Parameter& parameter : table_.parameters) {
      const std::vector<double>& a = reference_[s].tensors.at(parameter.name).*member;
      const std::vector<double>& b = target_[s].tensors.at(parameter.name).*member;
      Finding finding{.step = static_cast<int>(s) + 1,
                      .what = what,
                      .tensor = parameter.name,
                      .unit = model::unit_name(table_.config, parameter.unit)};
      const double scale = std::max(norm(a), 1e-30);
      finding.equal_bits = same_bits(a, b);
      finding.difference = distance(a, b) / scale;
      if (!exact_.empty()) {
        const double own = distance(a, exact_[s].tensors.at(parameter.name).*member);
        finding.bound = std::max(kFactor * own, kFloor * global) / scale;
      }
      findings.push_back(finding);
    }
  }

  const model::ParameterTable& table_;
  const std::vector<StepValues>& reference_;
  const std::vector<StepValues>& target_;
  const std::vector<StepValues>& exact_;
};

ResolvedRun with_layout(const ResolvedRun& run, const plan::Layout& layout, DType compute) {
  ResolvedRun other = run;
  other.config.layout = layout;
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

bool worse_than_promised(const Finding& finding, bool bits) { return bits ? !finding.equal_bits : !finding.within(); }

// The one worst finding of each tensor, by difference over bound.
std::vector<Finding> worst_of(const std::vector<Finding>& findings) {
  std::vector<Finding> worst;
  for (const Finding& finding : findings) {
    if (finding.what != "gradient") continue;
    const auto known = std::ranges::find(worst, finding.tensor, &Finding::tensor);
    if (known == worst.end()) {
      worst.push_back(finding);
    } else if (finding.difference * known->bound > known->difference * finding.bound) {
      *known = finding;
    }
  }
  std::ranges::stable_sort(worst, std::greater<>{},
                           [](const Finding& f) { return f.bound > 0 ? f.difference / f.bound : f.difference; });
  return worst;
}

}  // namespace

std::string_view verdict_name(Verdict verdict) {
  return verdict == Verdict::kEqual ? "equal" : verdict == Verdict::kWithinBound ? "within bound" : "different";
}

VerifyReport verify(Env& env, Log& log, const ResolvedRun& run, const VerifyOptions& options) {
  const plan::Layout& target = run.config.layout;
  const DType compute = run.plan.inputs.compute;
  VerifyReport report;
  report.bits_promised = promises_bits(options.reference, target);
  report.reference = run_layout(env, log, with_layout(run, options.reference, compute), options.steps);
  report.target = run_layout(env, log, with_layout(run, target, compute), options.steps, options.target_hooks);
  std::vector<StepValues> exact;
  const auto compare = [&](const std::vector<StepValues>& other) {
    return Comparison(run.plan.table, report.reference, other, exact).all();
  };
  std::vector<Finding> findings = compare(report.target);
  if (std::ranges::all_of(findings, &Finding::equal_bits)) {
    report.worst = worst_of(findings);
    return report;
  }
  plan::Layout one;
  one.recompute = options.reference.recompute;
  exact = run_layout(env, log, with_layout(run, one, DType::kF64), options.steps);
  findings = compare(report.target);
  report.worst = worst_of(findings);
  const auto first = std::ranges::find_if(
      findings, [&](const Finding& finding) { return worse_than_promised(finding, report.bits_promised); });
  if (first == findings.end()) {
    report.verdict = Verdict::kWithinBound;
    return report;
  }
  report.verdict = Verdict::kDifferent;
  report.first = *first;
  for (const auto& [axis, layout] : single_axes(options.reference, target)) {
    if (!plan::check_layout(run.plan.table.config, layout, run.config.batch).ok()) continue;
    std::vector<StepValues> alone;
    try {
      alone = run_layout(env, log, with_layout(run, layout, compute), options.steps, options.target_hooks);
    } catch (const Error&) {
      report.axis = axis;  // the fault ends the run by itself
      break;
    }
    const bool bits = promises_bits(options.reference, layout);
    if (std::ranges::any_of(compare(alone), [&](const Finding& f) { return worse_than_promised(f, bits); })) {
      report.axis = axis;
      break;
    }
  }
  return report;
}

}  // namespace trireme::train
