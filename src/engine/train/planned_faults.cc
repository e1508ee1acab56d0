#include "engine/train/planned_faults.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/words.h"

namespace trireme::train {
namespace {

using telemetry::Phase;

struct KindName {
  FaultKind kind;
  std::string_view name;
};
constexpr KindName kKinds[] = {
    {FaultKind::kKill, "kill"}, {FaultKind::kSegv, "segv"}, {FaultKind::kStop, "stop"},
    {FaultKind::kExit, "exit"}, {FaultKind::kHang, "hang"}, {FaultKind::kSlow, "slow"},
    {FaultKind::kNan, "nan"},   {FaultKind::kFlip, "flip"}, {FaultKind::kDiskFull, "disk-full"},
};
constexpr Phase kOfInstructions[] = {Phase::kForward, Phase::kBackward, Phase::kReduce, Phase::kOptimizer};
constexpr Phase kOfMicroBatches[] = {Phase::kForward, Phase::kBackward};
constexpr Phase kPhases[] = {Phase::kStart,  Phase::kLoad,      Phase::kForward,    Phase::kBackward,
                             Phase::kReduce, Phase::kOptimizer, Phase::kValidation, Phase::kSave};

template <class Range>
bool contains(const Range& range, Phase phase) {
  return std::ranges::find(range, phase) != std::end(range);
}

std::string_view kind_name(FaultKind kind) { return std::ranges::find(kKinds, kind, &KindName::kind)->name; }

std::string names(const auto& list, auto name) {
  std::vector<std::string> all;
  for (const auto& item : list) all.emplace_back(name(item));
  return fmt::format("{}", fmt::join(all, ", "));
}

Failure refused(std::string_view text, std::string rule, std::string nearest = "") {
  return {.option = "inject", .value = std::string(text), .rule = std::move(rule), .nearest = std::move(nearest)};
}

template <class T>
std::optional<T> number_of(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// "" or the rule that the value breaks.
std::string set(PlannedFault& fault, std::string_view key, std::string_view value) {
  constexpr std::int64_t kMost = std::int64_t{1} << 20;
  if (key == "phase") {
    fault.phase = telemetry::phase_of(value);
    if (fault.phase && contains(kPhases, *fault.phase)) return "";
    return fmt::format("phase is one of {}", names(kPhases, telemetry::phase_name));
  }
  if (key == "factor") {
    const std::optional<double> factor = number_of<double>(value);
    if (!factor || !(*factor > 1) || !(*factor <= 1e6)) return "factor is a number above 1, at most 1e6";
    fault.factor = *factor;
    return "";
  }
  if (key == "times" && value == "always") {
    fault.times = 0;
    return "";
  }
  const std::optional<std::int64_t> number = number_of<std::int64_t>(value);
  const std::int64_t least = key == "step" || key == "times" ? 1 : 0;
  const bool bounded = key != "step";
  if (!number || *number < least || (bounded && *number > kMost)) {
    return fmt::format("{} is a whole number from {}{}", key, least, key == "times" ? ", or always" : "");
  }
  if (key == "rank") fault.rank = static_cast<int>(*number);
  if (key == "step") fault.step = *number;
  if (key == "micro_batch") fault.micro_batch = static_cast<int>(*number);
  if (key == "times") fault.times = *number;
  return "";
}

// "" or why such a fault could never happen, or says what has no meaning.
std::string contradiction(const PlannedFault& fault, const std::vector<std::string_view>& keys) {
  const auto given = [&](std::string_view key) { return std::ranges::find(keys, key) != keys.end(); };
  const bool before_steps = fault.phase == Phase::kStart || fault.phase == Phase::kLoad;
  if (!given("rank")) return "it lacks its rank";
  if (!given("step") && !before_steps) return "it lacks its step";
  if (given("step") && before_steps) return "phase start and load come before any step, and take none";
  if (given("factor") && fault.kind != FaultKind::kSlow) return "factor is of slow alone";
  if (!fault.phase) return "";
  const bool of_instruction = contains(kOfInstructions, *fault.phase);
  if (given("micro_batch") && !contains(kOfMicroBatches, *fault.phase)) return "this phase has no micro-batches";
  if (fault.kind == FaultKind::kSlow && !of_instruction) return "slow is of the instructions of a step";
  if (fault.kind == FaultKind::kNan && !contains(kOfMicroBatches, *fault.phase)) return "nan is of forward or backward";
  if (fault.kind == FaultKind::kDiskFull && fault.phase != Phase::kSave) return "disk-full is of a save";
  return "";
}

Result<PlannedFault> parse_fault(std::string_view text) {
  constexpr std::string_view kKeys[] = {"rank", "step", "phase", "micro_batch", "times", "factor"};
  const std::size_t colon = text.find(':');
  const auto kind = std::ranges::find(kKinds, text.substr(0, colon), &KindName::name);
  if (kind == std::end(kKinds)) {
    return refused(text, "a fault begins with its kind and a colon",
                   names(kKinds, [](const KindName& one) { return one.name; }));
  }
  PlannedFault fault{.kind = kind->kind};
  std::vector<std::string_view> seen;
  const std::string_view rest = colon == std::string_view::npos ? std::string_view() : text.substr(colon + 1);
  for (std::string_view part : rest.empty() ? std::vector<std::string_view>{} : split(rest, ',')) {
    const std::size_t equals = part.find('=');
    const std::string_view key = part.substr(0, equals);
    if (std::ranges::find(kKeys, key) == std::end(kKeys) || equals == std::string_view::npos) {
      return refused(text, fmt::format("\"{}\" is no KEY=VALUE of a fault", part), names(kKeys, std::identity()));
    }
    if (std::ranges::find(seen, key) != seen.end()) return refused(text, fmt::format("{} is there twice", key));
    seen.push_back(key);
    if (const std::string rule = set(fault, key, part.substr(equals + 1)); !rule.empty()) return refused(text, rule);
  }
  if (const std::string rule = contradiction(fault, seen); !rule.empty()) return refused(text, rule);
  return fault;
}

}  // namespace

Result<std::vector<PlannedFault>> parse_planned_faults(std::string_view text) {
  std::vector<PlannedFault> faults;
  if (text.empty()) return faults;
  for (std::string_view part : split(text, ';')) {
    Result<PlannedFault> fault = parse_fault(part);
    if (!fault) return fault.failure();
    faults.push_back(*fault);
  }
  return faults;
}

std::string to_text(const PlannedFault& fault) {
  std::string text = fmt::format("{}:rank={}", kind_name(fault.kind), fault.rank);
  if (fault.step > 0) text += fmt::format(",step={}", fault.step);
  if (fault.phase) text += fmt::format(",phase={}", telemetry::phase_name(*fault.phase));
  if (fault.micro_batch >= 0) text += fmt::format(",micro_batch={}", fault.micro_batch);
  if (fault.times != 1) text += fault.times == 0 ? ",times=always" : fmt::format(",times={}", fault.times);
  if (fault.kind == FaultKind::kSlow) text += fmt::format(",factor={}", fault.factor);
  return text;
}

std::string to_text(const std::vector<PlannedFault>& faults) {
  std::vector<std::string> texts;
  for (const PlannedFault& fault : faults) texts.push_back(to_text(fault));
  return fmt::format("{}", fmt::join(texts, ";"));
}

}  // namespace trireme::train
