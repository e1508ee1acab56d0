#pragma once

// Test support: a run of seconds on a disk in memory, its ranks threads of the test. It saves at every second of its
// four steps, so that it leaves the checkpoints of steps 2 and 4.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/fake_env.h"
#include "engine/train/trainer.h"

namespace trireme::train {

using Settings = std::vector<std::pair<std::string, std::string>>;
using Files = std::map<std::string, std::string>;  // content by path

class SmallRun {
 public:
  static constexpr std::int64_t kSteps = 4;
  static constexpr int kDeadline = 60;  // seconds that a rank waits for another

  // On an own disk, or on `env`: tokens and a model.
  SmallRun();
  explicit SmallRun(std::unique_ptr<FakeEnv> env);
  // On a disk that holds these, and nothing else.
  explicit SmallRun(const Files& files);

  FakeEnv& env() { return *env_; }
  Files files(const std::string& under = "") const;

  struct Outcome {
    ExitCode code = ExitCode::kDone;
    std::int64_t first_step = 0;
    std::int64_t steps_done = 0;
    std::string error;  // what is printed: the message, a semicolon, the hint
  };
  // The run, or the same command once more: settings beside those that are the same for all. after_step is called on
  // the leader's thread, before a save that is due then, and stops the run where it gives true. An Error is an outcome;
  // nothing else is.
  Outcome run(const Settings& more = {}, const std::function<bool(std::int64_t step)>& after_step = nullptr);
  ResolvedRun resolved(const Settings& more = {});
  // Of all runs to come, but for what stops them. The rate of the machine is not measured: that takes longer than a
  // run.
  TrainHooks hooks = {.stop_requested = {}, .gemm_flops_per_s = 1e9, .measures_again = false};

  // Loss and gradient norm of each step, in hex, as the metrics have them.
  std::vector<std::string> curve(const std::string& out = "out");
  // All lines of the log since the last run began.
  std::string logged() const;

 private:
  void make_inputs();

  std::unique_ptr<FakeEnv> env_;
  MemoryLog log_;
};

inline const Settings kTwoReplicas = {{"layout.dp", "2"}};
// Of the checkpoints of a run in "out".
std::string checkpoint_path(std::int64_t step);
// One bit or more of one byte.
void damage(FakeEnv& env, const std::string& path, std::size_t byte, unsigned mask = 1);

}  // namespace trireme::train
