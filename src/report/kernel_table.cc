#include "report/kernel_table.h"

#include <algorithm>

#include <fmt/format.h>

namespace trireme::report {
namespace {

std::string kind_of(const std::string& kernel) { return kernel.substr(0, kernel.find(' ')); }

std::string line(const std::string& name, double seconds, double step_s) {
  return fmt::format("{:<34} {:>7} {:>9.2f} {:>6.1f} %\n", name, "", 1000 * seconds, 100 * seconds / step_s);
}

}  // namespace

std::vector<KernelRow> kernel_rows(std::vector<telemetry::KernelTimes> kernels, const KernelLimits& limits,
                                   bool by_shape) {
  std::vector<KernelRow> rows;
  for (telemetry::KernelTimes& kernel : kernels) {
    const double by_flops = kernel.flops / limits.flops_per_s;
    const double by_bytes = kernel.bytes / limits.bytes_per_s;
    if (!by_shape) kernel.kernel = kind_of(kernel.kernel);
    const auto known = std::ranges::find(rows, kernel.kernel, [](const KernelRow& row) { return row.times.kernel; });
    if (known == rows.end()) {
      rows.push_back({.times = kernel, .by_flops = by_flops >= by_bytes, .limit_s = std::max(by_flops, by_bytes)});
      continue;
    }
    known->times.calls += kernel.calls;
    known->times.seconds += kernel.seconds;
    known->times.flops += kernel.flops;
    known->times.bytes += kernel.bytes;
    known->limit_s += std::max(by_flops, by_bytes);
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
                        100 * row.limit_s / k.seconds, row.by_flops ? "flops" : "bytes");
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
                                {"limited_by", row.by_flops ? "flops" : "bytes"},
                                {"limit_s", row.limit_s}}));
  }
  return all;
}

}  // namespace trireme::report
