#include "engine/train/planned_faults.h"

#include <gtest/gtest.h>

#include "base/fake_env.h"

namespace trireme::train {
namespace {

using telemetry::Phase;

TEST(PlannedFaults, AreReadAndWritten) {
  const std::string text =
      "kill:rank=2,step=17;stop:rank=0,step=3,phase=backward,micro_batch=1,times=2;hang:rank=1,phase=load;"
      "slow:rank=5,step=9,times=always,factor=2.5;disk-full:rank=0,step=4,phase=save";
  const std::vector<PlannedFault> faults = parse_planned_faults(text).or_throw();
  const std::vector<PlannedFault> expected{
      {.kind = FaultKind::kKill, .rank = 2, .step = 17},
      {.kind = FaultKind::kStop, .rank = 0, .step = 3, .phase = Phase::kBackward, .micro_batch = 1, .times = 2},
      {.kind = FaultKind::kHang, .rank = 1, .phase = Phase::kLoad},
      {.kind = FaultKind::kSlow, .rank = 5, .step = 9, .times = 0, .factor = 2.5},
      {.kind = FaultKind::kDiskFull, .rank = 0, .step = 4, .phase = Phase::kSave}};
  EXPECT_EQ(faults, expected);
  EXPECT_EQ(to_text(faults), text);
  EXPECT_TRUE(parse_planned_faults("").or_throw().empty());
}

TEST(PlannedFaults, EachKindHasItsName) {
  for (const char* kind : {"kill", "segv", "stop", "exit", "hang", "nan", "disk-full", "flip"}) {
    const std::string text = std::string(kind) + ":rank=0,step=1";
    EXPECT_EQ(to_text(parse_planned_faults(text).or_throw()), text);
  }
}

TEST(PlannedFaults, WhatMakesNoSenseIsRefusedByName) {
  const auto refusal = [](const char* text) {
    const auto parsed = parse_planned_faults(text);
    return parsed ? "" : parsed.failure().sentence();
  };
  const std::string keys = "; nearest legal: rank, step, phase, micro_batch, times, factor";
  EXPECT_EQ(refusal("burn:rank=0,step=1"),
            "inject = burn:rank=0,step=1: a fault begins with its kind and a colon; nearest legal: kill, segv, stop, "
            "exit, hang, slow, nan, flip, disk-full");
  EXPECT_EQ(refusal("kill:rank=0,step=1;"),
            "inject: a fault begins with its kind and a colon; nearest legal: kill, segv, stop, exit, hang, slow, nan, "
            "flip, disk-full");
  EXPECT_EQ(refusal("kill"), "inject = kill: it lacks its rank");
  EXPECT_EQ(refusal("kill:rank=1"), "inject = kill:rank=1: it lacks its step");
  EXPECT_EQ(refusal("kill:rank=1,stop=2"), "inject = kill:rank=1,stop=2: \"stop=2\" is no KEY=VALUE of a fault" + keys);
  EXPECT_EQ(refusal("kill:rank=1,step"), "inject = kill:rank=1,step: \"step\" is no KEY=VALUE of a fault" + keys);
  EXPECT_EQ(refusal("kill:rank=1,rank=2,step=1"), "inject = kill:rank=1,rank=2,step=1: rank is there twice");
  EXPECT_EQ(refusal("kill:rank=-1,step=1"), "inject = kill:rank=-1,step=1: rank is a whole number from 0");
  EXPECT_EQ(refusal("kill:rank=1x,step=1"), "inject = kill:rank=1x,step=1: rank is a whole number from 0");
  EXPECT_EQ(refusal("kill:rank=1,step=0"), "inject = kill:rank=1,step=0: step is a whole number from 1");
  EXPECT_EQ(refusal("kill:rank=1,step=1,times=0"),
            "inject = kill:rank=1,step=1,times=0: times is a whole number from 1, or always");
  EXPECT_EQ(refusal("kill:rank=1,step=1,phase=idle"),
            "inject = kill:rank=1,step=1,phase=idle: phase is one of start, load, forward, backward, reduce, "
            "optimizer, validation, save");
  EXPECT_EQ(refusal("slow:rank=1,step=1,factor=1"),
            "inject = slow:rank=1,step=1,factor=1: factor is a number above 1, at most 1e6");
  EXPECT_EQ(refusal("slow:rank=1,step=1,factor=nan"),
            "inject = slow:rank=1,step=1,factor=nan: factor is a number above 1, at most 1e6");
}

TEST(PlannedFaults, WhatCouldNeverHappenIsRefused) {
  const auto rule = [](const char* text) {
    const auto parsed = parse_planned_faults(text);
    return parsed ? "" : parsed.failure().rule;
  };
  EXPECT_EQ(rule("kill:rank=0,step=3,phase=start"), "phase start and load come before any step, and take none");
  EXPECT_EQ(rule("kill:rank=0,step=3,factor=3"), "factor is of slow alone");
  EXPECT_EQ(rule("kill:rank=0,step=3,phase=save,micro_batch=0"), "this phase has no micro-batches");
  EXPECT_EQ(rule("slow:rank=0,step=3,phase=save"), "slow is of the instructions of a step");
  EXPECT_EQ(rule("nan:rank=0,step=3,phase=optimizer"), "nan is of forward or backward");
  EXPECT_EQ(rule("disk-full:rank=0,step=3,phase=forward"), "disk-full is of a save");
}

TEST(PlannedFaults, MarksAreRemovedAndNothingElse) {
  FakeEnv env;
  remove_fault_marks(env, "out");  // nothing there
  for (const char* name : {"out/.fault-0-1", "out/.fault-12-3", "out/.unsaved", "out/run.toml"}) env.put_file(name, "");
  remove_fault_marks(env, "out");
  EXPECT_EQ(env.list_directory("out"), (std::vector<std::string>{".unsaved", "run.toml"}));
}

}  // namespace
}  // namespace trireme::train
