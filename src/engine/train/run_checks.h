#pragma once

// What can be refused before a run takes memory or writes a file.

#include <vector>

#include "engine/data/sampler.h"
#include "engine/train/trainer.h"

namespace trireme::train {

// The training tokens in their shuffled order; the validation tokens in order. Refusals name the key.
data::Sampler open_training(Env& env, const ResolvedRun& run);
data::Sampler open_validation(Env& env, const ResolvedRun& run);

// Every token of both: one that is not below the vocabulary, or numbers of another width, are an Error that names the
// key, the file and the place. One process does it for all, once, before anything is trained. A word to the log every
// few seconds.
void check_tokens(Env& env, Log& log, const ResolvedRun& run);

// What every process of the run can refuse by itself: data.
void check_run(Env& env, const ResolvedRun& run);
// Of a run that begins anew: weights that are not there, not whole or not this model's, as far as their headers and the
// config.json beside them tell.
void check_weights(Env& env, const ResolvedRun& run);
// The disk has less left than one checkpoint needs (kStorage).
void check_room(Env& env, const ResolvedRun& run);

// The host has less memory left than `ranks`, those that it runs, need.
void check_memory(Env& env, const ResolvedRun& run, const std::vector<int>& ranks);
// Of a layout whose ranks are all here.
std::vector<int> all_ranks(const plan::Layout& layout);
// Of the process that has these ranks, whose libraries end it where they find no room for a thread.
void check_address_space(Env& env, const ResolvedRun& run, const std::vector<int>& ranks);

}  // namespace trireme::train
