#include "engine/kernels/host_device.h"

#include <cstring>
#include <new>

#include <fmt/format.h>

#include "base/error.h"
#include "base/huge_pages.h"

namespace trireme::kernels {
namespace {

// What is large begins on a huge page, where the system has such.
std::align_val_t alignment(Bytes bytes) {
  return std::align_val_t{static_cast<std::size_t>(bytes >= kHugePage ? kHugePage.count : kAllocationAlignment)};
}

// Writes to every page. One that is read first is mapped to the shared page of zeros, and its first write then
// interrupts every core that the process runs on: where ranks are threads they would pay for each other's buffers.
void touch(std::byte* data, Bytes bytes) {
  constexpr std::int64_t kPage = 4096;
  for (std::int64_t at = 0; at < bytes.count; at += kPage) data[at] = std::byte{};
}

void copy(void* destination, const void* source, Bytes bytes) {
  TRIREME_CHECK_GE(bytes.count, 0);
  if (bytes.count > 0) std::memcpy(destination, source, static_cast<std::size_t>(bytes.count));
}

}  // namespace

HostDevice::HostDevice(std::string name, std::unique_ptr<Kernels> kernels)
    : name_(std::move(name)), kernels_(std::move(kernels)) {}

std::byte* HostDevice::allocate(Bytes bytes) {
  TRIREME_CHECK_GT(bytes.count, 0);
  void* data = ::operator new(static_cast<std::size_t>(bytes.count), alignment(bytes), std::nothrow);
  if (data == nullptr) {
    throw Error(ExitCode::kDoesNotFit, "kernels", "allocate",
                fmt::format("the host has no {} bytes left", format_exact(bytes.count)),
                "lower the micro-batch or split the model further");
  }
  if (bytes >= kHugePage) prefer_huge_pages(data, bytes);
  touch(static_cast<std::byte*>(data), bytes);
  return static_cast<std::byte*>(data);
}
void HostDevice::deallocate(std::byte* data, Bytes bytes) { ::operator delete(data, alignment(bytes)); }
void HostDevice::copy_to_device(std::byte* destination, const void* source, Bytes bytes) {
  copy(destination, source, bytes);
}
void HostDevice::copy_to_host(void* destination, const std::byte* source, Bytes bytes) {
  copy(destination, source, bytes);
}

}  // namespace trireme::kernels
