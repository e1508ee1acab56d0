#include "report/kernel_table.h"

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
constexpr KernelLimits kLimits{.flops_per_s = 100e9, .bytes_per_s = 10e9};

TEST(KernelTable, EachKernelHasTheLimitThatTakesLonger) {
  const std::vector<KernelRow> rows = kernel_rows(kernels(), kLimits, true);
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].times.kernel, "add");
  EXPECT_FALSE(rows[0].by_flops);
  EXPECT_DOUBLE_EQ(rows[0].limit_s, 0.2);
  EXPECT_EQ(rows[1].times.kernel, "gemm NT 4 x 2 x 2");
  EXPECT_TRUE(rows[1].by_flops);
  EXPECT_DOUBLE_EQ(rows[1].limit_s, 0.2);
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
