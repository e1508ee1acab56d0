#pragma once

// The memory ledger: bytes by class, now and at the peak, and the peak of the sum (the peaks of classes do
// not coincide). plan/ fills one to predict, the arena fills one as it allocates; the two agree to the byte.

#include <array>
#include <string>
#include <string_view>

#include "base/units.h"

namespace trireme {

enum class MemoryClass : int {
  kWeights,
  kGradients,
  kExactAccumulators,
  kMasterWeights,
  kMoments,
  kSavedActivations,
  kGatheredParameters,
  kLogitsAndLoss,
  kTokenBatch,
  kCommunicationBuffers,
  kCheckpointStaging,
  kWorkspace,
};
inline constexpr int kMemoryClassCount = 12;
std::string_view memory_class_name(MemoryClass memory_class);  // "saved activations"
std::string_view memory_class_key(MemoryClass memory_class);   // "saved_activations"

class Ledger {
 public:
  // Every booking is rounded by allocation_size(). Zero bytes book nothing.
  void book(MemoryClass memory_class, Bytes bytes);
  // Releases a booking of the same size. More than is booked: InternalError.
  void release(MemoryClass memory_class, Bytes bytes);

  Bytes current(MemoryClass memory_class) const { return current_[index(memory_class)]; }
  Bytes peak(MemoryClass memory_class) const { return peak_[index(memory_class)]; }
  Bytes current_sum() const { return current_sum_; }
  Bytes peak_sum() const { return peak_sum_; }
  // What each class held at the moment of the peak of the sum.
  Bytes at_peak(MemoryClass memory_class) const { return at_peak_[index(memory_class)]; }

  // "" if peaks by class and of the sum are equal, else the first difference in words.
  static std::string first_difference(const Ledger& predicted, const Ledger& counted);

 private:
  static int index(MemoryClass memory_class) { return static_cast<int>(memory_class); }
  std::array<Bytes, kMemoryClassCount> current_{};
  std::array<Bytes, kMemoryClassCount> peak_{};
  std::array<Bytes, kMemoryClassCount> at_peak_{};
  Bytes current_sum_;
  Bytes peak_sum_;
};

}  // namespace trireme
