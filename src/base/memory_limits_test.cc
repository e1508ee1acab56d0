#include "base/memory_limits.h"

#include <gtest/gtest.h>

#include "base/fake_env.h"

namespace trireme {
namespace {

constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();

TEST(MemoryLimits, WithoutAnyNothingIsLess) {
  FakeEnv env;
  EXPECT_EQ(left_by_control_groups(env).count, kNone);
  env.put_file("/proc/self/cgroup", "0::/job\n");
  env.put_file("/sys/fs/cgroup/job/memory.max", "max\n");
  env.put_file("/sys/fs/cgroup/job/memory.current", "77\n");
  EXPECT_EQ(left_by_control_groups(env).count, kNone);
}

TEST(MemoryLimits, TheTightestGroupAroundCounts) {
  FakeEnv env;
  env.put_file("/proc/self/cgroup", "0::/slurm/job_3/step_0\n");
  env.put_file("/sys/fs/cgroup/slurm/memory.max", "9000\n");
  env.put_file("/sys/fs/cgroup/slurm/memory.current", "1000\n");
  EXPECT_EQ(left_by_control_groups(env).count, 8000);
  env.put_file("/sys/fs/cgroup/slurm/job_3/memory.max", "3000\n");
  env.put_file("/sys/fs/cgroup/slurm/job_3/memory.current", "2500\n");
  EXPECT_EQ(left_by_control_groups(env).count, 500);
  env.put_file("/sys/fs/cgroup/slurm/job_3/memory.stat", "anon 100\nfile 900\ninactive_file 700\n");
  EXPECT_EQ(left_by_control_groups(env).count, 1200);
  env.put_file("/sys/fs/cgroup/memory.max", "100\n");  // a container's own group is its root
  env.put_file("/sys/fs/cgroup/memory.current", "150\n");
  EXPECT_EQ(left_by_control_groups(env).count, 0);
}

TEST(MemoryLimits, OfTheFirstVersionToo) {
  FakeEnv env;
  env.put_file("/proc/self/cgroup", "5:cpu,memory:/box\n0::/\n");
  env.put_file("/sys/fs/cgroup/memory/box/memory.limit_in_bytes", "5000\n");
  env.put_file("/sys/fs/cgroup/memory/box/memory.usage_in_bytes", "1500\n");
  env.put_file("/sys/fs/cgroup/memory/box/memory.stat", "inactive_file 1\ntotal_inactive_file 500\n");
  EXPECT_EQ(left_by_control_groups(env).count, 4000);
}

TEST(MemoryLimits, TextThatIsNoneIsPassedOver) {
  FakeEnv env;
  for (const char* text : {"", "\n", ":", "::", "0:", "x:memory", "5:memory:", "0::", "0::/a\n0::/a/../..\n"}) {
    env.put_file("/proc/self/cgroup", text);
    EXPECT_EQ(left_by_control_groups(env).count, kNone) << text;
  }
}

}  // namespace
}  // namespace trireme
