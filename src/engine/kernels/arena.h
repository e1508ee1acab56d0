#pragma once

// The arena: the one place where a rank's training memory comes from. Every buffer is booked in the ledger under a
// class before it exists; a booking beyond what the plan predicted for its class, or beyond the limit, is refused.
// Freed buffers are kept by size and given out again, so a warm step allocates nothing from the system. What is kept
// counts: buffers in use and kept ones together never exceed the peak of the sum (of the prediction, where there is
// one), so the ledger bounds what the device holds; where a step's sizes leave no room for all of them, kept ones go
// back first. One rank, one thread.

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ledger.h"
#include "engine/kernels/device.h"

namespace trireme::kernels {

class Arena;

// Owns one allocation; gives it back when destroyed.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();
  std::byte* data() const { return data_; }
  Bytes bytes() const { return bytes_; }  // as asked for
  bool empty() const { return data_ == nullptr; }
  void release();

 private:
  friend class Arena;
  Arena* arena_ = nullptr;
  std::byte* data_ = nullptr;
  Bytes bytes_;
  MemoryClass memory_class_ = MemoryClass::kWorkspace;
};

struct ArenaOptions {
  std::optional<Ledger> booked{};  // the prediction: class peaks and the sum's peak may not be passed (InternalError)
  std::optional<Bytes> limit{};    // of the sum: Error kDoesNotFit with the ledger by class
  bool poison = false;             // fill new buffers with NaN bytes: tests of stale reads
};

class Arena {
 public:
  Arena(Device& device, const ArenaOptions& options);
  ~Arena();  // all buffers must have been released (CHECK)
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Zero bytes: an empty buffer, nothing booked. `name` appears in refusals.
  Buffer allocate(MemoryClass memory_class, std::string_view name, Bytes bytes);

  const Ledger& ledger() const { return ledger_; }
  Device& device() { return device_; }

 private:
  friend class Buffer;
  void give_back(Buffer& buffer);
  void check_booking(MemoryClass memory_class, std::string_view name, Bytes rounded) const;
  std::byte* take(Bytes rounded);
  void return_kept(Bytes at_least);
  void poison(std::byte* data, Bytes rounded);

  Device& device_;
  ArenaOptions options_;
  Ledger ledger_;
  Bytes held_;                                            // from the device: in use and kept
  std::map<std::int64_t, std::vector<std::byte*>> free_;  // by rounded size
};

}  // namespace trireme::kernels
