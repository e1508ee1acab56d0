#pragma once

// Weights into a rank and out of it: initialised by counter, imported from and exported to Hugging Face's safetensors,
// always by slice; no whole model is ever in memory beside the rank's own part.

#include <cstdint>
#include <functional>
#include <string>

#include "base/env.h"
#include "checkpoint/model_files.h"
#include "engine/parallel/rank_state.h"
#include "engine/train/control.h"

namespace trireme::train {

// What a parameter's elements are, by their global index.
using WeightSource = std::function<std::function<float(std::int64_t element)>(const model::Parameter&)>;
// Every local weight from it; master weights too.
void fill_weights(kernels::Device& device, const parallel::RunPlan& plan, const WeightSource& source,
                  parallel::RankState& state);

// Every local weight from its initialiser. A value is a function of seed, the tensor's Hugging Face name and the
// element's global index, so any slice of any layout gets the same.
void initialise_weights(kernels::Device& device, const parallel::RunPlan& plan, std::uint64_t seed,
                        parallel::RankState& state);

// Every local weight from a safetensors file, a sharded index, or a directory that has either; refused as
// checkpoint::ModelWeights has it.
// stored_layers: decoder layers of the model that is stored there, of which the plan's are the first; 0: as many.
void import_weights(Env& env, kernels::Device& device, const parallel::RunPlan& plan, const std::string& path,
                    parallel::RankState& state, std::int64_t stored_layers = 0);

// One rank's weights, not moving meanwhile.
struct RankWeights {
  const parallel::RunPlan& plan;
  kernels::Device& device;
  parallel::RankState& state;
};
// directory/config.json, the description's files and directory/model.safetensors, float32, written by the leader tensor
// by tensor: one whole tensor is in its host memory at a time, put together from all ranks' slices. Called by all
// ranks; when it returns on the leader, the files are durable. A weight that is not finite: Error(kDiverged), and no
// file. description: the leader's.
void export_model(Env& env, const RankWeights& own, Control& control, const std::string& directory,
                  const checkpoint::ModelDescription& description = {});

}  // namespace trireme::train
