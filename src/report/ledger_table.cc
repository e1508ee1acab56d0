#include "report/ledger_table.h"

#include <fmt/format.h>

namespace trireme::report {
namespace {

constexpr int kNameWidth = 24;
constexpr int kNumberWidth = 18;

std::string row(std::string_view name, Bytes at_peak, Bytes peak, const std::optional<Bytes>& counted) {
  std::string line = fmt::format("{:<{}}{:>{}}{:>{}}", name, kNameWidth, format_exact(at_peak.count), kNumberWidth,
                                 format_exact(peak.count), kNumberWidth);
  if (counted) {
    line +=
        fmt::format("{:>{}}  {}", format_exact(counted->count), kNumberWidth, *counted == peak ? "equal" : "DIFFERS");
  }
  return line + "\n";
}

}  // namespace

std::string ledger_table(const Ledger& predicted, const std::optional<Ledger>& counted,
                         const std::optional<Bytes>& resident) {
  std::string text = fmt::format("{:<{}}{:>{}}{:>{}}", "memory ledger (bytes)", kNameWidth, "at the peak", kNumberWidth,
                                 counted ? "predicted" : "peak", kNumberWidth);
  text += counted ? fmt::format("{:>{}}\n", "counted", kNumberWidth) : "\n";
  for (int i = 0; i < kMemoryClassCount; ++i) {
    const auto memory_class = static_cast<MemoryClass>(i);
    const Bytes peak = predicted.peak(memory_class);
    const std::optional<Bytes> seen = counted ? std::optional(counted->peak(memory_class)) : std::nullopt;
    if (peak.count == 0 && (!seen || seen->count == 0)) continue;
    text += row(memory_class_name(memory_class), predicted.at_peak(memory_class), peak, seen);
  }
  text += row("sum, at its peak", predicted.peak_sum(), predicted.peak_sum(),
              counted ? std::optional(counted->peak_sum()) : std::nullopt);
  if (resident) {
    const Bytes rest = *resident - predicted.peak_sum();
    text += fmt::format("{:<{}}{:>{}}  ({:+.1f}% beside the ledger: code, stacks, libraries' buffers)\n",
                        "resident memory", kNameWidth, format_exact(resident->count), kNumberWidth,
                        100.0 * static_cast<double>(rest.count) / static_cast<double>(predicted.peak_sum().count));
  }
  return text;
}

Json ledger_json(const Ledger& ledger) {
  Json object = Json::object();
  for (int i = 0; i < kMemoryClassCount; ++i) {
    const auto memory_class = static_cast<MemoryClass>(i);
    object[std::string(memory_class_key(memory_class)) + "_bytes"] = ledger.peak(memory_class).count;
  }
  object["peak_sum_bytes"] = ledger.peak_sum().count;
  return object;
}

}  // namespace trireme::report
