#pragma once

// What a layout computes: losses, norms, and every logical tensor's gradient and weights after each step, put together
// from all ranks' slices. Ranks run as threads of this process.

#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "engine/parallel/rank.h"
#include "engine/train/trainer.h"
#include "engine/train/weights.h"

namespace trireme::train {

struct TensorValues {
  std::vector<double> gradient;  // whole, as the clip norm saw it, without the loss scale
  std::vector<float> weight;     // after the update, as layers use it
  std::vector<float> master;     // after the update; empty in a run without master weights
};
struct StepValues {
  double loss = 0;
  double grad_norm = 0;
  double loss_scale = 1;  // what the gradients were multiplied by
  bool left_out = false;
  std::map<std::string, TensorValues> tensors = {};  // by Hugging Face name
};
struct LayoutCurve {
  std::map<std::string, TensorValues> start;  // before the first step: no gradients
  std::vector<StepValues> steps;
};

// Puts the ranks' slices together. Any thread.
class LayoutRecorder {
 public:
  // What a rank holds before its first step, and after each, by that rank's own thread.
  void record_start(parallel::Rank& from);
  void record(parallel::Rank& from, const parallel::StepResult& result, bool weights = true);
  // All of it, once all ranks have ended. Two ranks that hold different bits of one slice, or of loss or norm:
  // Error(kCorrupted) names the first, in order of steps and of the model.
  LayoutCurve whole();

 private:
  enum class What { kGradient, kWeight, kMaster, kScalar };
  using Place = std::tuple<std::size_t, What, int>;  // step (0: the start), what, parameter
  // Of a local tensor the elements from `begin` on.
  template <class T>
  void place(const Place& at, const model::Parameter& parameter, const plan::LocalTensor& local, std::int64_t begin,
             const std::vector<double>& values, std::vector<T>& whole);
  void record_weights(std::size_t step, parallel::Rank& from, std::map<std::string, TensorValues>& tensors);
  void record_gradients(std::size_t step, parallel::Rank& from, StepValues& values);
  void conflict(const Place& at, const std::string& operation, const std::string& text);

  std::mutex mutex_;
  LayoutCurve curve_;
  std::map<int, std::size_t> done_;  // by rank: steps
  std::map<Place, Error> conflicts_;
};

// Where tests plant faults: called for each rank before it is built, and for each pass of a unit.
struct RankHooks {
  std::function<void(parallel::RunPlan&)> plan = {};
  std::function<void(int rank, parallel::Executor&)> executor = {};
  std::function<std::int64_t(int rank, std::int64_t sample)> sample = {};  // which sample a rank reads instead
  // Around each communicator of a rank: injected delays and failures.
  std::function<std::unique_ptr<comm::Communicator>(int rank, std::unique_ptr<comm::Communicator>)> communicator = {};
};

// What of a run a curve is of.
struct CurveOptions {
  std::int64_t first = 1;                                              // the first step
  int steps = 1;                                                       // and how many
  WeightSource weights = nullptr;                                      // before it; null: as the run's keys say
  std::function<std::unique_ptr<kernels::Device>()> device = nullptr;  // null: the one of the run's type
  bool gradients_only = false;                                         // no weights are recorded
};

// `run`'s layout, step by step. In F32 or a narrow type on the CPU, or in F64 in the plain loops (slow; one rank).
LayoutCurve run_layout(Env& env, Log& log, const ResolvedRun& run, const CurveOptions& options,
                       const RankHooks& hooks = {});

}  // namespace trireme::train
