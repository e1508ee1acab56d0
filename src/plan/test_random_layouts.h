#pragma once

// Test support: random small models and legal layouts of up to 64 ranks, for both families: uneven stages, vocabularies
// that tp does not divide, grouped heads with tp beyond the kv heads, tied embeddings, every schedule and ZeRO stage.

#include <vector>

#include "plan/layout.h"

namespace trireme::plan {

struct RandomLayout {
  model::Config config;
  Layout layout;
  Batch batch;
};

// The same list for the same seed. Every entry passes check_layout.
std::vector<RandomLayout> random_layouts(int count, std::uint64_t seed);

}  // namespace trireme::plan
