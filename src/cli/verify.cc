#include "engine/train/verify.h"

#include <algorithm>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/launch.h"
#include "cli/memory_limit.h"

namespace trireme::cli {
namespace {

using train::Finding;
using train::VerifyReport;

struct Options {
  std::string file, against = "1x1x1";
  std::int64_t steps = 2, layers = 0;
  bool json = false;
  std::vector<std::pair<std::string, std::string>> settings;
};

[[noreturn]] void refuse_against(const std::string& text) {
  throw Error(Failure{.option = "--against",
                      .value = text,
                      .rule = "must be the degrees dp x tp x pp of the reference",
                      .nearest = "1x1x1"});
}

// "2x1x4": dp, tp, pp.
plan::Layout reference_layout(const std::string& text, const plan::Layout& target) {
  plan::Layout layout;
  int* degrees[] = {&layout.dp, &layout.tp, &layout.pp};
  std::size_t begin = 0;
  for (int i = 0; i < 3; ++i) {
    const std::size_t end = i < 2 ? text.find('x', begin) : text.size();
    if (end == std::string::npos || end == begin || end - begin > 4) refuse_against(text);
    for (char c : text.substr(begin, end - begin)) {
      if (c < '0' || c > '9') refuse_against(text);
    }
    *degrees[i] = std::stoi(text.substr(begin, end - begin));
    if (*degrees[i] < 1) refuse_against(text);
    begin = end + 1;
  }
  layout.recompute = target.recompute;
  return layout;
}

std::string unit_of(const Finding& finding) { return finding.tensor.empty() ? "" : " of " + finding.unit; }

// What it was compared with, where that is not the reference.
std::string_view against(const Finding& finding) {
  if (finding.what == "weights") return " from what the optimizer makes of the target's own gradients";
  if (finding.what == "gradient norm") return " from that of the target's own gradients";
  return "";
}

std::string sentence(const Finding& finding, const VerifyReport& report) {
  std::string text = fmt::format("step {}: {}{}{} differ{} by {:.3g}", finding.step, finding.what,
                                 finding.tensor.empty() ? "" : " of " + finding.tensor, unit_of(finding),
                                 finding.what.ends_with('s') && finding.what != "loss" ? "" : "s", finding.difference);
  if (report.bits_promised) {
    text += ", and these layouts promise the same bits";
  } else if (finding.bound > 0) {
    text += fmt::format("{}, {:.1f} times the bound {:.3g}", against(finding), finding.ratio(), finding.bound);
  } else {
    text += ", and all layouts have the same bits there";
  }
  if (!report.axis.empty()) text += fmt::format("; the {} axis alone does it", report.axis);
  return text;
}

// Of each kind of finding the largest difference, in bounds, in the order of their first.
std::vector<std::pair<std::string, double>> largest_ratios(const VerifyReport& report) {
  std::vector<std::pair<std::string, double>> all;
  for (const Finding& finding : report.findings) {
    const auto known = std::ranges::find(all, finding.what, &std::pair<std::string, double>::first);
    if (known == all.end()) {
      all.emplace_back(finding.what, finding.ratio());
    } else {
      known->second = std::max(known->second, finding.ratio());
    }
  }
  return all;
}

void print(const VerifyReport& report, const plan::Layout& reference, const plan::Layout& target) {
  fmt::print("reference  {}\ntarget     {}\n\n{:>5} {:>24} {:>24} {:>24} {:>24}\n", plan::describe(reference),
             plan::describe(target), "step", "loss", "loss of the target", "gradient norm", "norm of the target");
  for (std::size_t s = 0; s < report.reference.size(); ++s) {
    fmt::print("{:>5} {:>24} {:>24} {:>24} {:>24}\n", s + 1, format_hex(report.reference[s].loss),
               format_hex(report.target[s].loss), format_hex(report.reference[s].grad_norm),
               format_hex(report.target[s].grad_norm));
  }
  if (report.verdict != train::Verdict::kEqual) {
    fmt::print("\n{:<52} {:>5} {:>12} {:>12}\n", "gradients furthest from their bound", "step", "difference", "bound");
    for (std::size_t i = 0; i < std::min<std::size_t>(5, report.worst.size()); ++i) {
      const Finding& finding = report.worst[i];
      fmt::print("{:<52} {:>5} {:>12.3g} {:>12.3g}\n", finding.tensor, finding.step, finding.difference, finding.bound);
    }
  }
  if (!report.findings.empty()) fmt::print("\nlargest difference, of its bound:");
  for (const auto& [what, ratio] : largest_ratios(report)) fmt::print("  {} {:.3g}", what, ratio);
  fmt::print("{}\n{}\n", report.findings.empty() ? "" : "\n", train::verdict_name(report.verdict));
  if (report.first) fmt::print("{}\n", sentence(*report.first, report));
}

Json finding_json(const Finding& finding) {
  return Json::object({{"step", finding.step},
                       {"what", finding.what},
                       {"tensor", finding.tensor},
                       {"unit", finding.unit},
                       {"difference", finding.difference},
                       {"bound", finding.bound},
                       {"equal_bits", finding.equal_bits}});
}

Json to_json(const VerifyReport& report) {
  Json worst = Json::array(), steps = Json::array(), largest = Json::object();
  for (const auto& [what, ratio] : largest_ratios(report)) largest[what] = ratio;
  for (const Finding& finding : report.worst) worst.push_back(finding_json(finding));
  for (std::size_t s = 0; s < report.reference.size(); ++s) {
    steps.push_back(Json::object({{"loss_hex", format_hex(report.reference[s].loss)},
                                  {"target_loss_hex", format_hex(report.target[s].loss)},
                                  {"grad_norm_hex", format_hex(report.reference[s].grad_norm)},
                                  {"target_grad_norm_hex", format_hex(report.target[s].grad_norm)}}));
  }
  return Json::object({{"verdict", train::verdict_name(report.verdict)},
                       {"bits_promised", report.bits_promised},
                       {"axis", report.axis},
                       {"first", report.first ? finding_json(*report.first) : Json()},
                       {"steps", steps},
                       {"largest_over_bound", largest},
                       {"worst", worst}});
}

ExitCode run_verify(Env& env, Options options) {
  check_range("--steps", options.steps, 1, 1000, "2");
  check_range("--layers", options.layers, 0, 10'000, "0");
  if (Status status = check_alone(current_launch(), "verify"); !status) throw Error(status.failure());
  train::RunConfig config = train::load_run_config(env, options.file, options.settings).or_throw();
  config.validation_tokens = "";
  const train::ResolvedRun run = train::resolve_run(env, config, {.layers = options.layers});
  if (Status status = check_memory_limit(env, run); !status) throw Error(status.failure());
  const plan::Layout reference = reference_layout(options.against, run.config.layout);
  const std::unique_ptr<Log> log = make_stderr_log();
  const VerifyReport report =
      train::verify(env, *log, run, {.reference = reference, .steps = static_cast<int>(options.steps)});
  if (options.json) {
    fmt::print("{}\n", to_json(report).dump(2));
  } else {
    print(report, reference, run.config.layout);
  }
  switch (report.verdict) {
    case train::Verdict::kEqual:
      return ExitCode::kDone;
    case train::Verdict::kWithinBound:
      return ExitCode::kWithinBound;
    case train::Verdict::kDifferent:
      break;
  }
  return ExitCode::kCorrupted;
}

}  // namespace

void declare_verify(Command& root, Env& env) {
  auto options = std::make_shared<Options>();
  Command& command =
      root.command("verify", "Does a layout compute the same thing? The first tensor that differs, or none");
  command.positional("run", options->file, "run.toml; its layout is the target", true);
  command.option("against", options->against, "reference layout, dp x tp x pp");
  command.option("steps", options->steps, "steps to compare");
  command.option("layers", options->layers, "decoder layers of the model, the first ones, the width kept (0: all)");
  command.flag("json", options->json, "one JSON object on standard output");
  command.settings(options->settings);
  command.examples(
      "  trireme verify run.toml --layout.tp 2 --layout.dp 2 --layers 2\n"
      "  trireme verify run.toml --layout.pp 4 --against 1x1x1\n\n"
      "From the target's own weights before each step: the loss, and each gradient, within 4 times its own error "
      "against float64\n(more where that has few degrees of freedom); the norm and the new weights as the target's "
      "gradients make them.\nExit code 0: the same bits; 1: within these bounds; 87: different");
  command.run([options, &env] { return run_verify(env, *options); });
}

}  // namespace trireme::cli
