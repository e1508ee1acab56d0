#pragma once

// Writes the format that safetensors.h describes.

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/env.h"
#include "checkpoint/safetensors.h"

namespace trireme::checkpoint {

struct TensorSpec {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;
};

// The beginning of a file whose tensors lie one after another in this order: the header's length and its JSON, padded
// with blanks to a multiple of 8. Names must be distinct (InternalError).
std::string safetensors_header(std::span<const TensorSpec> tensors, const Metadata& metadata = {{"format", "pt"}});
// Of the tensor's data.
std::int64_t bytes_of(const TensorSpec& tensor);

// Writes one file. The header is written first, so all tensors are named at the start; data then come tensor
// by tensor, in any order, a tensor in one or more pieces. The file appears, durable, with finish().
class SafetensorsWriter {
 public:
  // Names must be distinct (InternalError). In the file, tensors of larger elements come first, else as
  // listed, so that every tensor is aligned to its elements.
  SafetensorsWriter(Env& env, const std::string& path, std::vector<TensorSpec> tensors,
                    const Metadata& metadata = {{"format", "pt"}});

  // The next bytes of a tensor. More than it has: InternalError.
  void write(std::string_view name, std::span<const std::byte> data);
  // The same from float32, rounded to the tensor's type (F32, BF16, F16).
  void write_floats(std::string_view name, std::span<const float> values);
  // InternalError if a tensor is not complete.
  void finish();

 private:
  struct Part {
    DType dtype = DType::kF32;
    std::int64_t next = 0;  // byte of the file where the next piece goes
    std::int64_t end = 0;
  };
  Part& part(std::string_view name);

  std::map<std::string, Part, std::less<>> parts_;
  AtomicFile file_;
};

}  // namespace trireme::checkpoint
