#pragma once

// An asynchronous device without hardware, for tests of everything above engine/kernels: it finds host code that
// touches device memory (the addresses that it hands out fault), that reads a result before it has waited, and that
// lets go of something too early. A worker thread runs the reference kernels in the order of the calls.
//
// What goes wrong in the work is thrown by the next synchronize() or copy_to_host() and by every later one; work behind
// it is dropped.

#include <cstdint>
#include <memory>

#include "base/units.h"
#include "engine/kernels/device.h"

namespace trireme::kernels {

struct FakeOptions {
  // Before each operation the worker sleeps for a random time up to this: missing waits show up.
  Seconds longest_delay{};
  std::uint64_t delay_seed = 0;
  Seconds deadline{60};  // of synchronize() and copy_to_host(): past it, Error(kHang)
};

std::unique_ptr<Device> make_fake_device(const FakeOptions& options);

namespace fake {

// Added to every address that leaves the device: no address space of 64 bits in use reaches so far, so a load faults.
inline constexpr std::uintptr_t kPoison = std::uintptr_t{1} << 62;

inline bool is_device_address(const void* address) {
  return (reinterpret_cast<std::uintptr_t>(address) & kPoison) != 0;
}

}  // namespace fake
}  // namespace trireme::kernels
