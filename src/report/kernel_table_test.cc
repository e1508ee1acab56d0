#include "report/kernel_table.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme::report {
namespace {

using testing::HasSubstr;

std::vector<telemetry::KernelTimes> kernels() {
  return {{.kernel = "gemm NN 2 x 2 x 2", .calls = 1, .seconds = 0.2, .flops = 10e9, .bytes = 1e9},
          {.kernel = "gemm NT 4 x 2 x 2", .calls = 2, .seconds = 0.3, .flops = 20e9, .bytes = 1e9},
          {.kernel = "add", .calls = 3, .seconds = 0.4, .flops = 0, .bytes = 2e9}};
}
constexpr KernelLimits kLimits{.flops_per_s = 100e9, .bytes_per_s = 10e9, .cache_bytes_per_s = 50e9};

TEST(KernelTable, EachKernelHasTheLimitThatTakesLonger) {
  const std::vector<KernelRow> rows = kernel_rows(kernels(), kLimits, true);
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].times.kernel, "add");
  EXPECT_EQ(rows[0].limit, KernelLimit::kBytes);
  EXPECT_DOUBLE_EQ(rows[0].limit_s, 0.2);
  EXPECT_EQ(rows[1].times.kernel, "gemm NT 4 x 2 x 2");
  EXPECT_EQ(rows[1].limit, KernelLimit::kFlops);
  EXPECT_DOUBLE_EQ(rows[1].limit_s, 0.2);
}

// Faster than memory: the data were in a cache.
TEST(KernelTable, NoShareIsAboveTheWhole) {
  const std::vector<telemetry::KernelTimes> fast = {
      {.kernel = "row_maximum", .calls = 1, .seconds = 0.05, .flops = 0, .bytes = 2e9},  // 40 GB/s
      {.kernel = "add", .calls = 1, .seconds = 0.02, .flops = 0, .bytes = 2e9},          // 100 GB/s: more than a cache
      {.kernel = "gemm NN", .calls = 1, .seconds = 0.1, .flops = 20e9, .bytes = 1e8},    // 200 GFLOP/s
      {.kernel = "gemm NT", .calls = 1, .seconds = 0.2, .flops = 20e9, .bytes = 1e8},
      {.kernel = "copy", .calls = 1, .seconds = 0.4, .flops = 0, .bytes = 2e9},  // 5 GB/s
      {.kernel = "fill", .calls = 1, .seconds = 0, .flops = 0, .bytes = 8}};
  const KernelLimits limits = reached(kLimits, fast);
  EXPECT_DOUBLE_EQ(limits.flops_per_s, 200e9);
  EXPECT_DOUBLE_EQ(limits.bytes_per_s, 10e9);
  EXPECT_DOUBLE_EQ(limits.cache_bytes_per_s, 100e9);
  const auto share = [](const KernelRow& row) { return row.limit_s / row.times.seconds; };
  const std::vector<KernelRow> rows = kernel_rows(fast, kLimits, true);
  for (const KernelRow& row : rows) EXPECT_LE(row.limit_s, row.times.seconds) << row.times.kernel;
  const auto row = [&](const std::string& name) {
    return *std::ranges::find(rows, name, [](const KernelRow& one) { return one.times.kernel; });
  };
  EXPECT_EQ(row("row_maximum").limit, KernelLimit::kCache);
  EXPECT_DOUBLE_EQ(share(row("row_maximum")), 0.4);
  EXPECT_DOUBLE_EQ(share(row("add")), 1.0);
  EXPECT_DOUBLE_EQ(share(row("gemm NN")), 1.0);
  EXPECT_DOUBLE_EQ(share(row("gemm NT")), 0.5);
  EXPECT_EQ(row("copy").limit, KernelLimit::kBytes);
  EXPECT_DOUBLE_EQ(share(row("copy")), 0.5);
  EXPECT_THAT(kernel_table(rows, 1, 0), HasSubstr("   40 % cache\n"));
}

TEST(KernelTable, ShapesOfOneKindAreAddedUp) {
  const std::vector<KernelRow> rows = kernel_rows(kernels(), kLimits, false);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].times.kernel, "gemm");
  EXPECT_EQ(rows[0].times.calls, 3);
  EXPECT_DOUBLE_EQ(rows[0].times.seconds, 0.5);
  EXPECT_DOUBLE_EQ(rows[0].limit_s, 0.1 + 0.2);
}

TEST(KernelTable, TellsWhatIsLeftOfTheStep) {
  const std::string text = kernel_table(kernel_rows(kernels(), kLimits, false), 1.0, 0.04);
  EXPECT_THAT(
      text,
      HasSubstr("gemm                                     3    500.00   50.0 %        60.0       4.0    60 % flops"));
  EXPECT_THAT(text, HasSubstr("waiting for other ranks                        40.00    4.0 %"));
  EXPECT_THAT(text, HasSubstr("in no kernel                                   60.00    6.0 %"));
}

TEST(KernelTable, AsJson) {
  const Json all = kernel_json(kernel_rows(kernels(), kLimits, true));
  EXPECT_EQ(all.as_array().size(), 3U);
  EXPECT_EQ(all.as_array()[0].find("limited_by")->as_string(), "bytes");
}

}  // namespace
}  // namespace trireme::report
