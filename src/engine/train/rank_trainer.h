#pragma once

// One rank's part of a training run: its memory, its share of every batch, its steps.

#include "checkpoint/manifest.h"
#include "engine/data/sampler.h"
#include "engine/parallel/rank.h"
#include "engine/train/layout_curve.h"
#include "engine/train/trainer.h"

namespace trireme::train {

class RankTrainer {
 public:
  // `tokens` and `validation` (may be null) are shared by all ranks of the process and outlive it. `factory`: may be
  // null in a run of one rank. host_of: the number of each rank's host; empty: one for all.
  RankTrainer(Env& env, Log& log, const ResolvedRun& run, int rank, std::unique_ptr<kernels::Device> device,
              const comm::CommunicatorFactory& factory, const data::Sampler& tokens, const data::Sampler* validation,
              const RankHooks& hooks = {}, std::vector<int> host_of = {});

  parallel::Rank& rank() { return *rank_; }

  // Where it starts from: weights as the run's keys say, or what a checkpoint's state (loaded by the caller) stands
  // for.
  void initialise();
  void go_on_from(const checkpoint::Progress& progress);

  // Step `step` (from 1, or from the one after the start) on this rank's samples. The rank's timeline, where it has
  // one, is off at the end.
  parallel::StepResult step(std::int64_t step);
  // Of the next step; scale 0: the run scales no loss.
  optim::LossScale loss_scale() const { return scales_loss() ? loss_scale_ : optim::LossScale{.scale = 0}; }
  bool scales_loss() const { return run_.config.precision == DType::kF16; }
  // Of the run's samples the first that this rank used in its last step.
  std::int64_t last_first_sample() const { return last_first_sample_; }
  // What the rank sent in its last step, and how long that took, by axis.
  const std::vector<comm::TrafficCount>& last_traffic() const { return last_traffic_; }
  const std::map<std::string, comm::AxisTimes>& last_times() const { return last_times_; }
  // How long its last step took, and how long of that was its own work: not blocked in communication. Where the ranks
  // of a machine have more threads than it has cores, own is what its thread has computed instead: that another rank
  // had its core says nothing of this one.
  struct StepTimes {
    Seconds all, own;
  };
  bool shares_cores() const { return shares_cores_; }
  StepTimes last_step_times() const { return last_step_times_; }
  // Losses of validation micro-batch `round`: every replica takes the same, so all ranks have the same sum.
  struct Validation {
    ExactSum losses;
    std::int64_t tokens = 0;  // that bear a loss
  };
  Validation validate(std::int64_t round);

 private:
  // Fills inputs_ and targets_; a target that is data.ignore becomes kernels::kIgnoredTarget.
  void fill(const data::Sampler& tokens, std::int64_t first_sample);

  Env& env_;
  const ResolvedRun& run_;
  checkpoint::Progress start_;
  optim::LossScale loss_scale_;
  const data::Sampler& tokens_;
  const data::Sampler* validation_;
  std::unique_ptr<parallel::Rank> rank_;
  int dp_index_;
  bool shares_cores_ = false;
  std::function<std::int64_t(std::int64_t)> sample_hook_;  // tests
  std::vector<std::int32_t> inputs_, targets_;
  std::int64_t last_first_sample_ = 0;
  std::vector<comm::TrafficCount> last_traffic_;
  std::map<std::string, comm::AxisTimes> last_times_;
  StepTimes last_step_times_;
};

}  // namespace trireme::train
