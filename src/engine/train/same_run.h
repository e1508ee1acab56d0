#pragma once

// Whether a checkpoint may go on as this run.

#include <string>
#include <vector>

#include "checkpoint/manifest.h"
#include "engine/data/sampler.h"
#include "engine/train/trainer.h"

namespace trireme::train {

// What identifies the training tokens: their number and a checksum of a sample of them, so that it costs nothing.
Json data_identity(const data::Sampler& tokens);

// Keys of checkpoint.accept: refused where one is not of those that may be accepted.
Status check_accepted_keys(const std::vector<std::string>& accept);

// Refused: another model or sequence length; other keys that shape the loss curve (steps, seed, global batch,
// optimizer, data) unless checkpoint.accept names them. The layout, the micro-batch and everything else may differ.
Status check_same_run(const checkpoint::Manifest& manifest, const std::string& path, const ResolvedRun& run,
                      const Json& data);

}  // namespace trireme::train
