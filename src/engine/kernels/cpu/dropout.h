#pragma once

// A row's dropout factors: 0, or 1 / (1 - probability).

#include <cstdint>
#include <vector>

#include "base/check.h"
#include "base/random.h"
#include "engine/kernels/kernels.h"

namespace trireme::kernels::cpu {

inline void check_dropout(const Dropout& dropout, std::int64_t sequences) {
  TRIREME_CHECK(dropout.probability >= 0.0 && dropout.probability < 1.0, "dropout probability {}", dropout.probability);
  if (dropout.probability > 0.0) TRIREME_CHECK_EQ(static_cast<std::int64_t>(dropout.streams.size()), sequences);
}

// Factors of elements [first, first + count) of the stream of one sequence.
inline void dropout_factors(const Dropout& dropout, std::int64_t sequence_index, std::int64_t first, std::int64_t count,
                            float* factors) {
  const RandomKey key{dropout.seed, dropout.streams[static_cast<std::size_t>(sequence_index)]};
  const float kept = static_cast<float>(1.0 / (1.0 - dropout.probability));
  for (std::int64_t i = 0; i < count; ++i) {
    const double draw = random_uniform(key, static_cast<std::uint64_t>(first + i));
    factors[i] = draw >= dropout.probability ? kept : 0.0f;
  }
}

}  // namespace trireme::kernels::cpu
