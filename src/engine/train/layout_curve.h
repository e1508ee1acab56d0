#pragma once

// What a layout computes: losses, norms, and every logical tensor's gradient and weights after each step, put together
// from all ranks' slices. Ranks run as threads of this process.

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "engine/parallel/rank.h"
#include "engine/train/trainer.h"

namespace trireme::train {

struct TensorValues {
  std::vector<double> gradient;  // whole, as the clip norm saw it
  std::vector<double> weight;    // after the update
};
struct StepValues {
  double loss = 0;
  double grad_norm = 0;
  std::map<std::string, TensorValues> tensors;  // by Hugging Face name
};

// Puts the ranks' slices of each step together.
class LayoutRecorder {
 public:
  explicit LayoutRecorder(int ranks);

  // A rank's step, by that rank's own thread.
  void record(int rank, parallel::Rank& from, const parallel::StepResult& result);
  // All steps, once all ranks have ended. Two ranks that hold different bits of one slice, or of loss or norm:
  // Error(kCorrupted) names them.
  std::vector<StepValues> whole(const model::ParameterTable& table) const;

 private:
  // What a rank knows of a local tensor: elements from `begin` on.
  struct Part {
    std::int64_t begin = 0;
    std::vector<double> values;
  };
  struct Slice {
    plan::LocalTensor local;
    Part gradient, weight;  // summed; kept
  };
  static void place(std::vector<double>& whole, const model::Parameter& parameter, const plan::LocalTensor& local,
                    const Part& part, const char* what);
  struct RankStep {
    parallel::StepResult result;
    std::vector<Slice> slices;
  };
  std::vector<std::vector<RankStep>> by_rank_;
};

// Where tests plant faults: called for each rank before it is built, and for each pass of a unit.
struct RankHooks {
  std::function<void(parallel::RunPlan&)> plan = {};
  std::function<void(int rank, parallel::Executor&)> executor = {};
  std::function<std::int64_t(int rank, std::int64_t sample)> sample = {};  // which sample a rank reads instead
  // Around each communicator of a rank: injected delays and failures.
  std::function<std::unique_ptr<comm::Communicator>(int rank, std::unique_ptr<comm::Communicator>)> communicator = {};
};

// `run`'s layout for `steps` steps. In F32 or a narrow type on the CPU, or in F64 in the plain loops (slow; one
// rank).
std::vector<StepValues> run_layout(Env& env, Log& log, const ResolvedRun& run, int steps, const RankHooks& hooks = {});

}  // namespace trireme::train
