#pragma once

// Compares the training state of two checkpoints, tensor by tensor, whatever layouts wrote them.

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/reader.h"

namespace trireme::checkpoint {

struct TensorDifference {
  std::string name;
  plan::StateKind kind = plan::StateKind::kWeight;
  std::int64_t elements = 0;
  std::int64_t differing = 0;     // by bits
  std::uint64_t largest_ulp = 0;  // floats between the two values; a NaN beside a number: the largest 32-bit value
  std::int64_t first_row = -1;    // of the first difference; -1: none
  std::int64_t first_column = -1;
  float first_a = 0.0F, first_b = 0.0F;
};

// Steps from one value to the other over the floats in their order, in which infinity follows the largest number: 0
// between -0 and 0 and between two NaNs; a NaN beside a number: the largest 32-bit value, which no two numbers reach.
std::uint64_t ulp_distance(float a, float b);

// In the order of a's tensors. A tensor that one of them lacks, or has in another shape: Error(kUsage) names it, before
// anything is read. Holds 2^20 values and one slice of each side at a time.
std::vector<TensorDifference> difference(const Reader& a, const Reader& b);

}  // namespace trireme::checkpoint
