#pragma once

// The weights of a model in safetensors that others have written: which of their tensors is which parameter, under the
// names that such files use.

#include <span>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"
#include "model/parameters.h"
#include "plan/slices.h"

namespace trireme::checkpoint {

// Immutable, so any number of threads may read.
class ModelWeights {
 public:
  // path: as SafetensorsReader::open has it. Names may have what wrappers leave in them (torch.compile's _orig_mod,
  // DDP's module, ...), one prefix more that is common to all, and may lack or have Hugging Face's base prefix
  // ("transformer.", "model."). All that headers tell is refused here (kUsage): files that are no safetensors, are not
  // there or not whole; a tensor of the model that is missing, of another shape, or of a type that is not read; one
  // that is none of the model's, but for buffers that old files carry. A head written out where the model ties it must
  // be the embedding, which is looked at.
  // stored_layers: decoder layers of the model that is stored, of which the table's are the first; 0: as many.
  static Result<ModelWeights> open(Env& env, const std::string& path, const model::ParameterTable& table,
                                   std::int64_t stored_layers = 0);

  // Rows and columns of a parameter (its index in the table) as float32, row-major; out.size() is their product. One
  // that is not finite: Error(kDiverged) names tensor and place.
  void read_box(std::size_t parameter, plan::Interval rows, plan::Interval columns, std::span<float> out) const;

 private:
  ModelWeights(SafetensorsReader file, std::vector<std::string> names)
      : file_(std::move(file)), names_(std::move(names)) {}

  SafetensorsReader file_;
  std::vector<std::string> names_;  // in the files, by parameter
};

}  // namespace trireme::checkpoint
