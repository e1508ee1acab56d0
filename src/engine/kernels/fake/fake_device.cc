#include "engine/kernels/fake/fake_device.h"

#include <cstring>
#include <vector>

#include "base/check.h"
#include "engine/kernels/fake/fake_kernels.h"
#include "engine/kernels/fake/work_queue.h"

namespace trireme::kernels {
namespace {

using fake::real_address;

class FakeDevice : public Device {
 public:
  explicit FakeDevice(const FakeOptions& options)
      : host_(make_reference_device()), queue_(options), kernels_(queue_, host_->kernels()) {}

  std::string_view name() const override { return "fake"; }

  std::byte* allocate(Bytes bytes) override {
    return reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(host_->allocate(bytes)) + fake::kPoison);
  }
  // In order with the work that may still use the memory.
  void deallocate(std::byte* data, Bytes bytes) override {
    queue_.push([this, data, bytes] { host_->deallocate(real_address(data), bytes); }, fake::WorkQueue::After::kAlways);
  }

  void copy_to_device(std::byte* destination, const void* source, Bytes bytes) override {
    check_host_address(source);
    if (bytes.count == 0) return;
    const auto* begin = static_cast<const std::byte*>(source);
    std::vector<std::byte> kept(begin, begin + bytes.count);
    queue_.push([target = real_address(destination), kept = std::move(kept)] {
      std::memcpy(target, kept.data(), kept.size());
    });
  }
  void copy_to_host(void* destination, const std::byte* source, Bytes bytes) override {
    check_host_address(destination);
    queue_.wait();
    host_->copy_to_host(destination, real_address(source), bytes);
  }
  void synchronize() override { queue_.wait(); }

  Stream stream() override { return {&queue_}; }
  Kernels& kernels() override { return kernels_; }

 private:
  static void check_host_address(const void* address) {
    TRIREME_CHECK(!fake::is_device_address(address), "device memory was given as a host's");
  }

  std::unique_ptr<Device> host_;
  fake::WorkQueue queue_;
  fake::FakeKernels kernels_;
};

}  // namespace

std::unique_ptr<Device> make_fake_device(const FakeOptions& options) { return std::make_unique<FakeDevice>(options); }

std::unique_ptr<Device> make_fake_device() { return make_fake_device(FakeOptions{}); }

}  // namespace trireme::kernels
