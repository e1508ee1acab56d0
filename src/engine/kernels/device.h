#pragma once

// A device: its memory, its queue, its kernels. One object a rank. Everything above engine/kernels reaches device
// memory through this and Kernels only, so that a GPU is a second implementation and no change elsewhere.

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/stream.h"
#include "base/units.h"
#include "engine/kernels/kernels.h"

namespace trireme::kernels {

class Device {
 public:
  virtual ~Device() = default;
  virtual std::string_view name() const = 0;

  // Memory, aligned to kAllocationAlignment, contents undefined. Out of memory: Error with ExitCode::kDoesNotFit.
  virtual std::byte* allocate(Bytes bytes) = 0;
  virtual void deallocate(std::byte* data, Bytes bytes) = 0;

  // The host source may be reused when the call returns. In order with kernels.
  virtual void copy_to_device(std::byte* destination, const void* source, Bytes bytes) = 0;
  // Waits until the data are on the host.
  virtual void copy_to_host(void* destination, const std::byte* source, Bytes bytes) = 0;
  // Rows of `row` floats of device memory, the next one `stride` floats further on, to the host one after the other.
  // For much that the host does not read at once. Waits likewise.
  virtual void copy_rows_to_host(float* destination, const float* source, std::int64_t row, std::int64_t rows,
                                 std::int64_t stride);
  // Waits for all work; rethrows what went wrong in it.
  virtual void synchronize() = 0;

  virtual Stream stream() = 0;
  virtual Kernels& kernels() = 0;
};

// A contiguous tensor of floating-point numbers on the host, in double. Waits for it.
std::vector<double> to_host(Device& device, ConstTensorView view);

// Plain loops, float32 and float64, one thread: the oracle.
std::unique_ptr<Device> make_reference_device();
// oneDNN and SIMD by runtime dispatch, float32.
std::unique_ptr<Device> make_cpu_device(int threads);
// What its bits depend on beside this program: "oneDNN 2.6.3, AVX2".
std::string cpu_fingerprint();
// Asynchronous: a worker thread runs the reference loops in order; its addresses fault when the host touches them.
std::unique_ptr<Device> make_fake_device();

}  // namespace trireme::kernels
