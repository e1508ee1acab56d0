#pragma once

// What a checkpoint is made of and where its run stood: manifest.json, written last. No rank number means anything in
// it. The format: docs/formats/checkpoint.md.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/error.h"
#include "base/json.h"
#include "model/parameters.h"
#include "plan/checkpoint_tiles.h"

namespace trireme::checkpoint {

inline constexpr const char* kManifestFile = "manifest.json";
// Versions of the format that are read. A manifest is written in the first that has all its members.
inline constexpr int kFirstVersion = 1;
inline constexpr int kModelFilesVersion = 2;
inline constexpr int kLastVersion = kModelFilesVersion;

// Where a run stands.
struct Progress {
  std::int64_t step = 0;     // optimizer steps done
  std::int64_t samples = 0;  // sequences used; the next step begins with this one
  std::int64_t tokens = 0;
  std::int64_t incarnation = 0;  // of the run, from 1: how often it was started
  std::int64_t failures = 0;     // starts that went on after an end without a save
  double elapsed_s = 0.0;        // trained for, over all incarnations
  double loss_scale = 0.0;       // of the next step, of an fp16 run; 0: of another
  std::int64_t good_steps = 0;   // since that last changed
  friend bool operator==(const Progress&, const Progress&) = default;
};

Json to_json(const Progress& progress);

// A part of a logical tensor, in a file under the key slice_key().
struct Slice {
  int file = 0;  // index into Manifest::files
  plan::TensorBox box;
  std::string checksum;  // of its bytes
  friend bool operator==(const Slice&, const Slice&) = default;
};

struct StoredState {
  std::string name;  // Hugging Face's name of the parameter
  plan::StateKind kind = plan::StateKind::kWeight;
  std::vector<std::int64_t> shape;  // one or two dimensions
  DType dtype = DType::kF32;
  std::vector<Slice> slices;  // cover the tensor exactly
  std::int64_t rows() const { return shape[0]; }
  std::int64_t columns() const { return shape.size() > 1 ? shape[1] : 1; }
  friend bool operator==(const StoredState&, const StoredState&) = default;
};

struct StoredFile {
  std::string name;  // inside the directory
  std::int64_t bytes = 0;
  std::string header_checksum;  // of the safetensors header: the length's 8 bytes and the JSON
  friend bool operator==(const StoredFile&, const StoredFile&) = default;
};

// A file that the model's folder had beside its weights (checkpoint/model_files.h).
struct StoredModelFile {
  std::string name;  // inside the directory
  std::int64_t bytes = 0;
  std::string checksum;  // of all its bytes
  friend bool operator==(const StoredModelFile&, const StoredModelFile&) = default;
};

struct Manifest {
  Progress progress;
  std::string reason;           // why it was saved: "interval", "end", "stop", "import"
  std::string saved_at;         // UTC
  std::string program;          // version and fingerprint of what wrote it
  std::string layout;           // that wrote it, in words
  Json model = Json::object();  // config.json of the model, as it came
  std::vector<StoredModelFile> model_files;
  Json run = Json::object();   // the run's keys as run.toml has them; empty: not written by a run
  Json data = Json::object();  // what identifies the training tokens; empty likewise
  Json scaler = nullptr;       // of the loss, where there is one
  std::vector<StoredFile> files;
  std::vector<StoredState> tensors;  // weights, then moments, each in the model's order

  const StoredState* find(std::string_view name, plan::StateKind kind) const;
  std::int64_t bytes() const;  // of all files of tensors
  int version() const { return model_files.empty() ? kFirstVersion : kModelFilesVersion; }
  friend bool operator==(const Manifest&, const Manifest&) = default;
};

// "exp_avg/model.norm.weight/0:64", "weight/lm_head.weight/0:1024,512:1024": state, name, rows and, of a matrix,
// columns.
std::string slice_key(const StoredState& tensor, const plan::TensorBox& box);

// The text of manifest.json: its last line holds the checksum of all bytes before it, and the text has one form only,
// so no byte of it can change unnoticed.
std::string to_text(const Manifest& manifest);
// Refused (kStorage) with `path`: a wrong checksum (expected, found), another version (what this program reads),
// anything that is not a manifest; slices that do not cover their tensor exactly, files or tensors named twice.
Result<Manifest> parse_manifest(std::string_view text, const std::string& path);

// What a manifest of this model must list: name, kind, shape of every state, slices still empty.
std::vector<StoredState> states_of(const model::ParameterTable& table);

}  // namespace trireme::checkpoint
