#pragma once

// The kinks of relu: where an input of it is a rounding away from zero, a run's backward passes a whole contribution on
// or nothing. Float64 loops that find such inputs, or take the other side at some of them.

#include <memory>
#include <vector>

#include "engine/kernels/device.h"

namespace trireme::kernels {

// An input of relu, named by the backward call (counted from the device's first) and the element of its matrix.
struct Kink {
  std::int64_t call = 0;
  std::int64_t element = 0;
  double distance = 0;  // from zero, over the root mean square of the call's inputs
};

// Of one rank's thread.
struct Kinks {
  double near = 0;               // distance that counts
  std::size_t most = 16;         // of those only the nearest
  bool flip = false;             // take the other side at those in `found`, instead of finding them
  std::vector<Kink> found = {};  // nearest first; exact zeros, which no rounding moves, are none
  std::int64_t calls = 0;        // of backward, so far
};

// The reference device; F64 alone where relu is. `kinks` outlives it.
std::unique_ptr<Device> make_kink_device(Kinks& kinks);

}  // namespace trireme::kernels
