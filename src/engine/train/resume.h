#pragma once

// From a checkpoint on: the newest one that is whole.

#include <string>

#include "base/env.h"
#include "base/log.h"
#include "checkpoint/manifest.h"
#include "engine/data/sampler.h"
#include "engine/train/control.h"
#include "engine/train/rank_trainer.h"
#include "engine/train/run_directory.h"

namespace trireme::train {

// Before memory is taken: the first checkpoint whose manifest can be read may go on as this run (Error otherwise).
// Those that are damaged are left to load_checkpoint().
void check_start(Env& env, const ResolvedRun& run, const RunStart& start, const data::Sampler& tokens);

struct Resumed {
  checkpoint::Progress progress;  // of the checkpoint; zeros: none
  std::string reason;             // that it was saved for; "": none
  std::string path;
};
// All ranks, together: loads the state of the first of the leader's checkpoints that every rank finds whole; damaged
// ones are named and passed over. The leader's list: empty, and nothing is done. None is whole: Error(kStorage) on all
// ranks, which lists what is wrong with each.
Resumed load_checkpoint(Env& env, Log& log, const ResolvedRun& run, const std::vector<std::string>& leaders_list,
                        const data::Sampler& tokens, Control& control, RankTrainer& rank);

}  // namespace trireme::train
