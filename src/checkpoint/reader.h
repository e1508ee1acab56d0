#pragma once

// Reads a checkpoint slice by slice; every slice is compared with its checksum before its values are given out.
// Immutable after open(), so any number of threads may read.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/env.h"
#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"

namespace trireme::checkpoint {

class Reader {
 public:
  // directory: of one checkpoint. Refused (kStorage; kUsage where there is no such directory) with file, expected and
  // found: no or a damaged manifest, one of another step than the directory's name, a missing file or one of another
  // size, a header that is not the one that was written or lacks a slice.
  static Result<Reader> open(Env& env, const std::string& directory);
  // The manifest alone, refused likewise; no other file is looked at.
  static Result<Manifest> open_manifest(Env& env, const std::string& directory);

  const std::string& directory() const { return directory_; }
  const Manifest& manifest() const { return manifest_; }

  // The values of a slice, row-major, read into `buffer` (of at least its bytes) and verified. Error(kStorage) names
  // file, tensor, box, expected and found checksum.
  std::span<const float> read(const StoredState& tensor, const Slice& slice, std::span<std::byte> buffer) const;
  // A box of a logical tensor, row-major; `buffer` holds one slice at a time.
  void read_box(const StoredState& tensor, const plan::TensorBox& box, std::span<std::byte> buffer,
                std::span<float> out) const;
  // Of the largest slice.
  Bytes largest_slice() const;

 private:
  Reader() = default;
  struct File {
    std::string path;
    std::shared_ptr<const RandomReader> reader;
    std::map<std::string, std::int64_t, std::less<>> begins;  // of slices by key, in bytes of the file
  };
  struct Part {
    const StoredState* tensor;
    const Slice* slice;
  };
  static std::vector<std::vector<Part>> parts_by_file(const Manifest& manifest);
  static Result<File> open_file(Env& env, const std::string& directory, const StoredFile& stored,
                                const std::vector<Part>& parts);
  static void read_part(const File& file, const Part& part, std::span<std::byte> out);
  friend std::vector<std::string> damages_of(Env& env, const std::string& directory,
                                             const std::function<void(Bytes)>& progress);

  std::string directory_;
  Manifest manifest_;
  std::vector<File> files_;
};

// Reads every byte. One sentence for each thing that is wrong; empty: the checkpoint is whole. Of a file that open()
// would refuse no slice is read. `progress` (may be null) is told the bytes read so far, of manifest().bytes().
std::vector<std::string> damages_of(Env& env, const std::string& directory,
                                    const std::function<void(Bytes)>& progress = nullptr);

}  // namespace trireme::checkpoint
