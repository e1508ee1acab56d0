#pragma once

// Which tensors of a Hugging Face safetensors file are a model's parameters, under the names that such files use.

#include <string>

#include "checkpoint/safetensors.h"
#include "model/parameters.h"

namespace trireme::checkpoint {

// The tensor of a parameter, under its own name or without Hugging Face's base prefix ("transformer.", "model."), as
// files of the bare base model have it. None, or one of another shape: Error(kUsage) names it. `path` is that of
// `file`, for the message.
const StoredTensor& stored_tensor(const SafetensorsReader& file, const model::Parameter& parameter,
                                  const std::string& path);

// Error(kUsage) names the first tensor that is none of this model's. Passed over: buffers that old files carry beside
// parameters, and a tied head written out.
void refuse_unknown_tensors(const SafetensorsReader& file, const model::ParameterTable& table, const std::string& path);

}  // namespace trireme::checkpoint
