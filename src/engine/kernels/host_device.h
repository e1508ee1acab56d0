#pragma once

// A device whose memory is the host's and whose work is done when a call returns: the reference loops and the CPU.

#include <memory>
#include <string>

#include "engine/kernels/device.h"

namespace trireme::kernels {

class HostDevice : public Device {
 public:
  HostDevice(std::string name, std::unique_ptr<Kernels> kernels);

  std::string_view name() const override { return name_; }
  std::byte* allocate(Bytes bytes) override;
  void deallocate(std::byte* data, Bytes bytes) override;
  void copy_to_device(std::byte* destination, const void* source, Bytes bytes) override;
  void copy_to_host(void* destination, const std::byte* source, Bytes bytes) override;
  void synchronize() override {}
  Stream stream() override { return {}; }
  Kernels& kernels() override { return *kernels_; }

 private:
  std::string name_;
  std::unique_ptr<Kernels> kernels_;
};

}  // namespace trireme::kernels
