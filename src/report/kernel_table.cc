#include "report/kernel_table.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace trireme::report {
namespace {

std::string kind_of(const std::string& kernel) { return kernel.substr(0, kernel.find(' ')); }

std::string_view limit_name(KernelLimit limit) {
  constexpr std::string_view kNames[] = {"flops", "bytes", "cache"};
  return kNames[static_cast<std::size_t>(limit)];
}

std::pair<KernelLimit, double> limit_of(const telemetry::KernelTimes& kernel, const KernelLimits& limits) {
  const double by_flops = kernel.flops / limits.flops_per_s, by_memory = kernel.bytes / limits.bytes_per_s;
  const bool in_cache = by_memory > kernel.seconds;
  const double by_bytes = in_cache ? kernel.bytes / limits.cache_bytes_per_s : by_memory;
  const double limit_s = std::min(std::max(by_flops, by_bytes), kernel.seconds);  // but for rounding no less anyway
  if (by_flops >= by_bytes) return {KernelLimit::kFlops, limit_s};
  return {in_cache ? KernelLimit::kCache : KernelLimit::kBytes, limit_s};
}

std::string line(const std::string& name, double seconds, double step_s) {
  return fmt::format("{:<34} {:>7} {:>9.2f} {:>6.1f} %\n", name, "", 1000 * seconds, 100 * seconds / step_s);
}

}  // namespace

KernelLimits reached(KernelLimits limits, const std::vector<telemetry::KernelTimes>& kernels) {
  limits.cache_bytes_per_s = std::max(limits.cache_bytes_per_s, limits.bytes_per_s);
  for (const telemetry::KernelTimes& kernel : kernels) {
    if (!(kernel.seconds > 0)) continue;
    limits.flops_per_s = std::max(limits.flops_per_s, kernel.flops / kernel.seconds);
    limits.cache_bytes_per_s = std::max(limits.cache_bytes_per_s, kernel.bytes / kernel.seconds);
  }
  return limits;
}

std::vector<KernelRow> kernel_rows(std::vector<telemetry::KernelTimes> kernels, const KernelLimits& measured,
                                   bool by_shape) {
  const KernelLimits limits = reached(measured, kernels);
  std::vector<KernelRow> rows;
  for (telemetry::KernelTimes& kernel : kernels) {
    const auto [limit, limit_s] = limit_of(kernel, limits);
    if (!by_shape) kernel.kernel = kind_of(kernel.kernel);
    const auto known = std::ranges::find(rows, kernel.kernel, [](const KernelRow& row) { return row.times.kernel; });
    if (known == rows.end()) {
      rows.push_back({.times = kernel, .limit = limit, .limit_s = limit_s});
      continue;
    }
    known->times.calls += kernel.calls;
    known->times.seconds += kernel.seconds;
    known->times.flops += kernel.flops;
    known->times.bytes += kernel.bytes;
    known->limit_s += limit_s;
  }
  std::ranges::stable_sort(rows, std::greater<>{}, [](const KernelRow& row) { return row.times.seconds; });
  return rows;
}

std::string kernel_table(const std::vector<KernelRow>& rows, double step_s, double waited_s) {
  std::string text = fmt::format("{:<34} {:>7} {:>9} {:>8} {:>11} {:>9} {:>9}\n", "kernel", "calls", "ms", "of step",
                                 "GFLOP/s", "GB/s", "of limit");
  double kernels_s = 0;
  for (const KernelRow& row : rows) {
    const telemetry::KernelTimes& k = row.times;
    kernels_s += k.seconds;
    const std::string flops = k.flops > 0 ? fmt::format("{:.1f}", k.flops / k.seconds / 1e9) : "";
    text += fmt::format("{:<34} {:>7} {:>9.2f} {:>6.1f} % {:>11} {:>9.1f} {:>5.0f} % {}\n", k.kernel, k.calls,
                        1000 * k.seconds, 100 * k.seconds / step_s, flops, k.bytes / k.seconds / 1e9,
                        100 * row.limit_s / k.seconds, limit_name(row.limit));
  }
  text += line("waiting for other ranks", waited_s, step_s);
  text += line("in no kernel", std::max(0.0, step_s - kernels_s - waited_s), step_s);
  return text + line("step", step_s, step_s);
}

Json kernel_json(const std::vector<KernelRow>& rows) {
  Json all = Json::array();
  for (const KernelRow& row : rows) {
    all.push_back(Json::object({{"kernel", row.times.kernel},
                                {"calls", row.times.calls},
                                {"time_s", row.times.seconds},
                                {"flops", row.times.flops},
                                {"bytes", row.times.bytes},
                                {"limited_by", limit_name(row.limit)},
                                {"limit_s", row.limit_s}}));
  }
  return all;
}

}  // namespace trireme::report
