#pragma once

// What can be refused before a run takes memory or writes a file, and the files that it claims.

#include <memory>

#include "engine/data/sampler.h"
#include "engine/train/trainer.h"

namespace trireme::train {

// The training tokens in their shuffled order; the validation tokens in order. Refusals name the key.
data::Sampler open_training(Env& env, const ResolvedRun& run);
data::Sampler open_validation(Env& env, const ResolvedRun& run);

// The run directory holds nothing that would be overwritten without being asked.
void check_directory(Env& env, const RunConfig& config);
// Claims it, removes what an earlier run left, and keeps the resolved run.
std::unique_ptr<FileLock> open_directory(Env& env, const RunConfig& config);

// The host has less memory left than `ranks`, those that it runs, need.
void check_memory(Env& env, const ResolvedRun& run, const std::vector<int>& ranks);

}  // namespace trireme::train
