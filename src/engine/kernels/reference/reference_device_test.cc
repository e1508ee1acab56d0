#include <array>
#include <cstdint>

#include <gtest/gtest.h>

#include "base/error.h"
#include "engine/kernels/device.h"

namespace trireme::kernels {
namespace {

TEST(ReferenceDevice, MemoryIsAlignedAndCopied) {
  const auto device = make_reference_device();
  EXPECT_EQ(device->name(), "reference");
  EXPECT_EQ(device->kernels().threads(), 1);
  EXPECT_EQ(device->stream().native, nullptr);
  std::byte* data = device->allocate({12});
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % kAllocationAlignment, 0u);
  const std::array<std::int32_t, 3> from{1, 2, 3};
  std::array<std::int32_t, 3> to{};
  device->copy_to_device(data, from.data(), {12});
  device->copy_to_host(to.data(), data, {12});
  device->copy_to_host(nullptr, data, {0});
  device->synchronize();
  EXPECT_EQ(from, to);
  device->deallocate(data, {12});
}

TEST(ReferenceDevice, OutOfMemoryIsAnErrorThatSaysSo) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's allocator ends the program instead";
#endif
  const auto device = make_reference_device();
  try {
    device->allocate({std::int64_t{1} << 60});
    FAIL() << "2^60 bytes were found";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kDoesNotFit);
    EXPECT_NE(std::string(error.what()).find("1,152,921,504,606,846,976 bytes"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace trireme::kernels
