#include "engine/kernels/arena.h"

#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/error.h"

namespace trireme::kernels {
namespace {

std::string usage(const Ledger& ledger) {
  std::string text;
  for (int i = 0; i < kMemoryClassCount; ++i) {
    const auto memory_class = static_cast<MemoryClass>(i);
    const Bytes current = ledger.current(memory_class);
    if (current.count == 0) continue;
    text +=
        fmt::format("{}{} {}", text.empty() ? "" : ", ", memory_class_name(memory_class), format_exact(current.count));
  }
  return text.empty() ? "nothing is in use" : "in use: " + text;
}

std::string request(MemoryClass memory_class, std::string_view name, Bytes rounded) {
  return fmt::format("{} bytes of {} for '{}'", format_exact(rounded.count), memory_class_name(memory_class), name);
}

constexpr std::string_view kHint = "lower the micro-batch, recompute more, or shard further (trireme plan)";

}  // namespace

Buffer::Buffer(Buffer&& other) noexcept
    : arena_(std::exchange(other.arena_, nullptr)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, Bytes{})),
      memory_class_(other.memory_class_) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this != &other) {
    release();
    arena_ = std::exchange(other.arena_, nullptr);
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, Bytes{});
    memory_class_ = other.memory_class_;
  }
  return *this;
}

Buffer::~Buffer() { release(); }

void Buffer::release() {
  if (arena_ != nullptr) arena_->give_back(*this);
  arena_ = nullptr;
  data_ = nullptr;
  bytes_ = {};
}

Arena::Arena(Device& device, const ArenaOptions& options) : device_(device), options_(options) {}

Arena::~Arena() {
  TRIREME_CHECK(ledger_.current_sum() == Bytes{}, "an arena ends before its buffers; {}", usage(ledger_));
  return_kept(held_);
}

Buffer Arena::allocate(MemoryClass memory_class, std::string_view name, Bytes bytes) {
  TRIREME_CHECK_GE(bytes.count, 0);
  Buffer buffer;
  if (bytes.count == 0) return buffer;
  const Bytes rounded = allocation_size(bytes);
  check_booking(memory_class, name, rounded);
  ledger_.book(memory_class, bytes);
  try {
    buffer.data_ = take(rounded);
  } catch (const Error& error) {
    ledger_.release(memory_class, bytes);
    if (error.code() != ExitCode::kDoesNotFit) throw;
    throw Error(ExitCode::kDoesNotFit, "memory", "allocate",
                fmt::format("{}: {}; {}", request(memory_class, name, rounded), error.what(), usage(ledger_)),
                std::string(kHint));
  }
  buffer.arena_ = this;
  buffer.bytes_ = bytes;
  buffer.memory_class_ = memory_class;
  if (options_.poison) poison(buffer.data_, rounded);
  return buffer;
}

void Arena::check_booking(MemoryClass memory_class, std::string_view name, Bytes rounded) const {
  const Bytes in_class = ledger_.current(memory_class) + rounded;
  const Bytes in_all = ledger_.current_sum() + rounded;
  if (options_.booked) {
    TRIREME_CHECK(in_class <= options_.booked->peak(memory_class), "{} make {}, beyond the predicted peak of {} ({})",
                  request(memory_class, name, rounded), in_class.count, options_.booked->peak(memory_class).count,
                  usage(ledger_));
    TRIREME_CHECK(in_all <= options_.booked->peak_sum(), "{} make {} in all, beyond the predicted peak of {} ({})",
                  request(memory_class, name, rounded), in_all.count, options_.booked->peak_sum().count,
                  usage(ledger_));
  }
  if (options_.limit && in_all > *options_.limit) {
    throw Error(ExitCode::kDoesNotFit, "memory", "allocate",
                fmt::format("{} make {} in all, beyond the limit of {} bytes; {}", request(memory_class, name, rounded),
                            format_exact(in_all.count), format_exact(options_.limit->count), usage(ledger_)),
                std::string(kHint));
  }
}

// The ledger has the booking already.
std::byte* Arena::take(Bytes rounded) {
  const auto kept = free_.find(rounded.count);
  if (kept != free_.end()) {
    std::byte* data = kept->second.back();
    kept->second.pop_back();
    if (kept->second.empty()) free_.erase(kept);
    return data;
  }
  const Bytes peak = options_.booked ? options_.booked->peak_sum() : ledger_.peak_sum();
  if (held_ + rounded > peak) return_kept(held_ + rounded - peak);
  std::byte* data = nullptr;
  try {
    data = device_.allocate(rounded);
  } catch (const Error&) {
    if (free_.empty()) throw;
    return_kept(held_);
    data = device_.allocate(rounded);
  }
  held_ += rounded;
  return data;
}

// Gives kept buffers back to the device, largest first, until `at_least` bytes are back or none are kept.
void Arena::return_kept(Bytes at_least) {
  Bytes returned;
  while (returned < at_least && !free_.empty()) {
    const auto largest = std::prev(free_.end());
    const Bytes size{largest->first};
    device_.deallocate(largest->second.back(), size);
    largest->second.pop_back();
    if (largest->second.empty()) free_.erase(largest);
    returned += size;
    held_ -= size;
  }
}

void Arena::give_back(Buffer& buffer) {
  ledger_.release(buffer.memory_class_, buffer.bytes_);
  free_[allocation_size(buffer.bytes_).count].push_back(buffer.data_);
}

// All bits set: a NaN in every floating type, and an index that no table has.
void Arena::poison(std::byte* data, Bytes rounded) {
  const std::vector<std::byte> pattern(static_cast<std::size_t>(rounded.count), std::byte{0xFF});
  device_.copy_to_device(data, pattern.data(), rounded);
}

}  // namespace trireme::kernels
