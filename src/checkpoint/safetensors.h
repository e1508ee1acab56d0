#pragma once

// Hugging Face's safetensors format. A file:
//   8 bytes   header length N, unsigned little-endian, at most 100,000,000
//   N bytes   JSON, starting with '{', padded at its end with blanks:
//             {"name": {"dtype": "BF16", "shape": [4, 8], "data_offsets": [begin, end]}, ...,
//              "__metadata__": {"key": "text", ...}}
//   the rest  the tensors, row-major, little-endian; offsets count from here; no overlaps, no holes, nothing
//   after
// A model may be cut into several files; model.safetensors.index.json then has {"weight_map": {"name":
// "file", ...}}.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/env.h"
#include "base/error.h"

namespace trireme::checkpoint {

inline constexpr const char* kSafetensorsFile = "model.safetensors";
inline constexpr const char* kSafetensorsIndexFile = "model.safetensors.index.json";

inline constexpr std::int64_t kSafetensorsHeaderLimit = 100'000'000;

using Metadata = std::vector<std::pair<std::string, std::string>>;

// A tensor in a file.
struct StoredTensor {
  std::string name;
  std::string type;            // as the file writes it; files may hold types that this program does not compute with
  std::optional<DType> dtype;  // where it does
  std::vector<std::int64_t> shape;
  std::int64_t begin = 0;  // bytes [begin, end) of the file
  std::int64_t end = 0;
  std::size_t file = 0;  // index into SafetensorsReader::files()

  std::int64_t elements() const;
  std::int64_t bytes() const { return end - begin; }
};

// One file or all files of a model, opened and checked; tensors are read a slice at a time. Immutable, so any
// number of threads may read.
class SafetensorsReader {
 public:
  // path: a .safetensors file, an index, or a directory (safetensors_in). What is wrong with a file is refused
  // with its name (kStorage), before any tensor is read.
  static Result<SafetensorsReader> open(Env& env, const std::string& path);

  const std::vector<std::string>& files() const { return paths_; }
  // In the order of files and of data in them.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  const StoredTensor* find(std::string_view name) const;  // null if there is none
  const Metadata& metadata() const { return metadata_; }  // of all files, the first of equal keys

  // The elements [begin[d], begin[d] + extent[d]) of each dimension d as float32, row-major, converted
  // exactly from F32, BF16 or F16. Only the rows needed are read, through a few MiB of memory. Error: no such
  // tensor, another type, a slice that is not inside the shape, a failing read.
  void read_slice(std::string_view name, std::span<const std::int64_t> begin, std::span<const std::int64_t> extent,
                  std::span<float> out) const;
  // Rows [first, first + count) of dimension 0.
  void read_rows(std::string_view name, std::int64_t first, std::int64_t count, std::span<float> out) const;
  // The whole tensor.
  void read_all(std::string_view name, std::span<float> out) const;
  // Bytes [offset, offset + out.size()) of the tensor as they are stored.
  void read_raw(std::string_view name, std::int64_t offset, std::span<std::byte> out) const;

 private:
  SafetensorsReader() = default;
  Status add_file(Env& env, const std::string& path);
  Status add_indexed_files(Env& env, const std::string& index_path);
  const StoredTensor& get(std::string_view name, std::string_view operation) const;

  std::vector<std::string> paths_;
  std::vector<std::shared_ptr<const RandomReader>> readers_;
  std::vector<StoredTensor> tensors_;
  std::map<std::string, std::size_t, std::less<>> by_name_;
  Metadata metadata_;
};

// What the header of one file says, checked against the file's size. `path` names the file in refusals.
struct SafetensorsHeader {
  std::vector<StoredTensor> tensors;  // by offset; begin and end are of the file
  Metadata metadata;
};
Result<SafetensorsHeader> read_safetensors_header(const RandomReader& reader, const std::string& path);

}  // namespace trireme::checkpoint
