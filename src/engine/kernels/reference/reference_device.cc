#include <cstring>
#include <new>

#include <fmt/format.h>

#include "base/error.h"
#include "engine/kernels/device.h"
#include "engine/kernels/reference/reference_kernels.h"

namespace trireme::kernels {
namespace {

constexpr std::align_val_t kAlignment{static_cast<std::size_t>(kAllocationAlignment)};

// Host memory; work is done when a call returns.
class ReferenceDevice : public Device {
 public:
  std::string_view name() const override { return "reference"; }

  std::byte* allocate(Bytes bytes) override {
    TRIREME_CHECK_GT(bytes.count, 0);
    void* data = ::operator new(static_cast<std::size_t>(bytes.count), kAlignment, std::nothrow);
    if (data == nullptr) {
      throw Error(ExitCode::kDoesNotFit, "kernels", "allocate",
                  fmt::format("the host has no {} bytes left", format_exact(bytes.count)),
                  "lower the micro-batch or split the model further");
    }
    return static_cast<std::byte*>(data);
  }
  void deallocate(std::byte* data, Bytes) override { ::operator delete(data, kAlignment); }

  void copy_to_device(std::byte* destination, const void* source, Bytes bytes) override {
    copy(destination, source, bytes);
  }
  void copy_to_host(void* destination, const std::byte* source, Bytes bytes) override {
    copy(destination, source, bytes);
  }
  void synchronize() override {}

  Stream stream() override { return {}; }
  Kernels& kernels() override { return kernels_; }

 private:
  static void copy(void* destination, const void* source, Bytes bytes) {
    TRIREME_CHECK_GE(bytes.count, 0);
    if (bytes.count > 0) std::memcpy(destination, source, static_cast<std::size_t>(bytes.count));
  }

  ReferenceKernels kernels_;
};

}  // namespace

std::unique_ptr<Device> make_reference_device() { return std::make_unique<ReferenceDevice>(); }

}  // namespace trireme::kernels
