#pragma once

// A checkpoint's weights as a Hugging Face folder, and such a folder as a checkpoint.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/env.h"
#include "base/units.h"
#include "checkpoint/model_files.h"
#include "checkpoint/reader.h"
#include "model/config.h"

namespace trireme::checkpoint {

// The text of config.json for weights of this type: the document as it is, but for the type, and with the name of the
// model's class where it has none. null: as model::to_hugging_face writes the model.
std::string hugging_face_config(Json document, const model::Config& config, DType dtype);
// What other readers of an exported model will refuse; "" for nothing known.
std::string refused_elsewhere(const model::Config& config);

struct ExportOptions {
  Bytes shard_size{0};         // of one safetensors file's tensors, at least one tensor each; 0: one file
  DType dtype = DType::kF32;   // F32, BF16 or F16 (CHECK)
  std::string tokenizer = {};  // a tokenizer.json to copy; "": the checkpoint's, if it has one
  std::function<void(Bytes done, Bytes total)> progress = {};  // may be empty; bytes written
};
struct ExportReport {
  std::vector<std::string> files;  // inside the directory, those of weights first
  std::int64_t parameters = 0;
  Bytes bytes;          // of the tensors
  std::string warning;  // refused_elsewhere
};
// directory/config.json, the files that the checkpoint carries, and model.safetensors, or
// model-00001-of-00003.safetensors and their index. Tensor by tensor: one whole tensor is in memory at a time. Weights
// that are not finite: Error(kDiverged); that are beyond the range of `dtype`: Error(kUsage). An existing file of ours
// there is refused (kUsage). Where it throws, no file of it is left.
ExportReport export_hugging_face(Env& env, const Reader& checkpoint, const std::string& directory,
                                 const ExportOptions& options);

struct ImportOptions {
  std::string program = {};                                    // as the manifest names it
  std::int64_t slices_a_file = 4096;                           // at most 16 GiB
  std::function<void(Bytes done, Bytes total)> progress = {};  // may be empty; bytes written
};
// A Hugging Face folder (config.json with safetensors) as a checkpoint at step 0 with moments of zero, in a Store at
// `directory`: complete or absent. Gives its path. Refused as ModelWeights has it; a step 0 that is there already is
// refused too (kUsage).
std::string import_hugging_face(Env& env, const std::string& folder, const std::string& directory,
                                const ImportOptions& options = {});

}  // namespace trireme::checkpoint
