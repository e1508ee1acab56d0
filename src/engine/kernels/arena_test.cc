#include "engine/kernels/arena.h"

#include <cmath>
#include <memory>
#include <set>
#include <utility>

#include <gtest/gtest.h>

#include "base/error.h"

namespace trireme::kernels {
namespace {

// Counts what an arena takes; fails when told to.
class CountingDevice : public Device {
 public:
  std::string_view name() const override { return "counting"; }
  std::byte* allocate(Bytes bytes) override {
    if (bytes > free_memory) throw Error(ExitCode::kDoesNotFit, "kernels", "allocate", "no memory left");
    if (broken) throw Error(ExitCode::kInternal, "kernels", "allocate", "device lost");
    free_memory -= bytes;
    ++allocations;
    std::byte* data = inner_->allocate(bytes);
    live.insert(data);
    return data;
  }
  void deallocate(std::byte* data, Bytes bytes) override {
    EXPECT_EQ(live.erase(data), 1u);
    free_memory += bytes;
    inner_->deallocate(data, bytes);
  }
  void copy_to_device(std::byte* destination, const void* source, Bytes bytes) override {
    inner_->copy_to_device(destination, source, bytes);
  }
  void copy_to_host(void* destination, const std::byte* source, Bytes bytes) override {
    inner_->copy_to_host(destination, source, bytes);
  }
  void synchronize() override {}
  Stream stream() override { return {}; }
  Kernels& kernels() override { return inner_->kernels(); }

  Bytes free_memory{1 << 20};
  int allocations = 0;
  bool broken = false;
  std::set<std::byte*> live;

 private:
  std::unique_ptr<Device> inner_ = make_reference_device();
};

template <class Exception, class Function>
std::string message_of(Function&& function) {
  try {
    function();
  } catch (const Exception& error) {
    return error.what();
  }
  return "nothing was thrown";
}

class ArenaTest : public testing::Test {
 protected:
  Buffer weights(Bytes bytes) { return arena_->allocate(MemoryClass::kWeights, "layer 3 weights", bytes); }
  Buffer saved(Bytes bytes) { return arena_->allocate(MemoryClass::kSavedActivations, "layer 3 qkv", bytes); }
  void start(const ArenaOptions& options = {}) { arena_ = std::make_unique<Arena>(device_, options); }

  CountingDevice device_;
  std::unique_ptr<Arena> arena_;
};

TEST_F(ArenaTest, BooksWhatItGivesOut) {
  start();
  {
    const Buffer a = weights({100});
    const Buffer b = saved({64});
    EXPECT_EQ(a.bytes().count, 100);
    EXPECT_FALSE(a.empty());
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a.data()) % kAllocationAlignment, 0u);
    EXPECT_EQ(arena_->ledger().current(MemoryClass::kWeights).count, 128);
    EXPECT_EQ(arena_->ledger().current_sum().count, 192);
  }
  EXPECT_EQ(arena_->ledger().current_sum().count, 0);
  EXPECT_EQ(arena_->ledger().peak_sum().count, 192);
  EXPECT_EQ(&arena_->device(), &device_);
}

TEST_F(ArenaTest, AnEmptyBufferBooksNothing) {
  start({.booked = Ledger()});
  Buffer buffer = weights({0});
  EXPECT_TRUE(buffer.empty());
  buffer.release();
  EXPECT_EQ(device_.allocations, 0);
  EXPECT_THROW(weights({-1}), InternalError);
}

TEST_F(ArenaTest, MovedBuffersAreReleasedOnce) {
  start();
  Buffer a = weights({64});
  std::byte* const data = a.data();
  Buffer b = std::move(a);
  EXPECT_TRUE(a.empty());  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(b.data(), data);
  Buffer c = saved({64});
  c = std::move(b);
  EXPECT_EQ(c.data(), data);
  EXPECT_EQ(arena_->ledger().current(MemoryClass::kSavedActivations).count, 0);
  EXPECT_EQ(arena_->ledger().current(MemoryClass::kWeights).count, 64);
  Buffer& same = c;
  c = std::move(same);
  EXPECT_EQ(c.data(), data);
  c.release();
  c.release();
  EXPECT_TRUE(c.empty());
  EXPECT_EQ(arena_->ledger().current_sum().count, 0);
}

TEST_F(ArenaTest, FreedBuffersAreGivenOutAgain) {
  start();
  std::byte* first = nullptr;
  {
    const Buffer a = weights({200});
    first = a.data();
  }
  const Buffer b = saved({256});  // the same rounded size, another class
  EXPECT_EQ(b.data(), first);
  EXPECT_EQ(device_.allocations, 1);
}

TEST_F(ArenaTest, AWarmStepAllocatesNothing) {
  start();
  const auto step = [&] {
    for (int layer = 0; layer < 3; ++layer) {
      const Buffer a = weights({1000});
      const Buffer b = saved({500});
    }
    const Buffer c = saved({500});
    const Buffer d = weights({1000});
  };
  step();
  const int warm = device_.allocations;
  step();
  EXPECT_EQ(device_.allocations, warm);
}

TEST_F(ArenaTest, WhatIsHeldNeverExceedsThePeakOfTheSum) {
  start();
  const Bytes before = device_.free_memory;
  { const Buffer a = weights({1024}); }
  { const Buffer b = weights({512}); }  // the 1024 kept bytes go back first
  EXPECT_EQ((before - device_.free_memory).count, 512);
  EXPECT_EQ(arena_->ledger().peak_sum().count, 1024);
  { const Buffer c = weights({448}); }  // both may be kept
  EXPECT_EQ((before - device_.free_memory).count, 960);
  arena_.reset();
  EXPECT_EQ(device_.free_memory, before);
  EXPECT_TRUE(device_.live.empty());
}

TEST_F(ArenaTest, ABookingBeyondThePredictionIsRefused) {
  Ledger booked;
  booked.book(MemoryClass::kWeights, {128});
  booked.release(MemoryClass::kWeights, {128});
  booked.book(MemoryClass::kSavedActivations, {64});
  start({.booked = booked});
  const Buffer a = weights({64});
  const std::string text = message_of<InternalError>([&] { weights({65}); });
  EXPECT_NE(text.find("128 bytes of weights for 'layer 3 weights' make 192, beyond the predicted peak of 128"),
            std::string::npos)
      << text;
  EXPECT_EQ(arena_->ledger().peak(MemoryClass::kWeights).count, 64);
  const Buffer b = saved({64});
  const std::string sum = message_of<InternalError>([&] { weights({64}); });  // legal alone; beyond the sum's peak
  EXPECT_NE(sum.find("64 bytes of weights for 'layer 3 weights' make 192 in all, beyond the predicted peak of 128"),
            std::string::npos)
      << sum;
}

TEST_F(ArenaTest, ABookingBeyondTheLimitDoesNotFit) {
  start({.limit = Bytes{256}});
  const Buffer a = weights({128});
  const Buffer b = saved({64});
  try {
    saved({65});
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kDoesNotFit);
    EXPECT_STREQ(error.what(),
                 "memory: allocate: 128 bytes of saved activations for 'layer 3 qkv' make 320 in all, beyond the limit "
                 "of 256 bytes; in use: weights 128, saved activations 64");
    EXPECT_FALSE(error.hint().empty());
  }
  EXPECT_NO_THROW(saved({64}));
}

TEST_F(ArenaTest, ADeviceWithoutMemoryDoesNotFit) {
  device_.free_memory = {256};
  start();
  const Buffer a = weights({128});
  try {
    saved({256});
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kDoesNotFit);
    EXPECT_NE(std::string(error.what()).find("256 bytes of saved activations for 'layer 3 qkv': "), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("no memory left; in use: weights 128"), std::string::npos);
  }
  EXPECT_EQ(arena_->ledger().current_sum().count, 128);
  device_.broken = true;
  EXPECT_EQ(message_of<Error>([&] { saved({64}); }), "kernels: allocate: device lost");
}

TEST_F(ArenaTest, KeptBuffersGoBackBeforeADeviceIsFull) {
  device_.free_memory = {256};
  start({.booked = [] {
    Ledger booked;  // more than the device has
    booked.book(MemoryClass::kWeights, {1024});
    return booked;
  }()});
  { const Buffer a = weights({192}); }
  const Buffer b = weights({256});
  EXPECT_FALSE(b.empty());
  EXPECT_EQ(device_.live.size(), 1u);
}

TEST_F(ArenaTest, NewBuffersArePoisoned) {
  start({.poison = true});
  for (int round = 0; round < 2; ++round) {
    const Buffer a = weights({8});
    double value = 0;
    device_.copy_to_host(&value, a.data(), {8});
    EXPECT_TRUE(std::isnan(value));
    value = 1;
    device_.copy_to_device(a.data(), &value, {8});
  }
  EXPECT_EQ(device_.allocations, 1);
}

TEST(ArenaDeathTest, AnArenaOutlivesItsBuffers) {
  const auto end_early = [] {
    const auto device = make_reference_device();
    auto arena = std::make_unique<Arena>(*device, ArenaOptions{});
    const Buffer buffer = arena->allocate(MemoryClass::kWorkspace, "slab", {64});
    arena.reset();
  };
  EXPECT_DEATH(end_early(), "an arena ends before its buffers; in use: workspace 64");
}

}  // namespace
}  // namespace trireme::kernels
