#include "support/tiny_tokens.h"

#include "base/random.h"
#include "engine/kernels/kernels.h"

namespace trireme::testing {
namespace {

// Tokens that a model can learn something from: each follows from the one before, with some noise.
std::vector<std::int32_t> tokens_of(const TinyRun& run, std::uint64_t sample) {
  std::vector<std::int32_t> ids;
  const auto vocabulary = static_cast<std::uint64_t>(run.config.vocabulary);
  std::uint64_t id = random_bits({run.seed, sample}, 0) % vocabulary;
  for (std::int64_t i = 0; i <= run.batch.sequence; ++i) {
    ids.push_back(static_cast<std::int32_t>(id));
    const bool noise = random_bits({run.seed, sample}, static_cast<std::uint64_t>(i + 1)) % 5 == 0;
    id = (id * 3 + (noise ? 2 : 1)) % vocabulary;
  }
  return ids;
}

}  // namespace

TinyBatch tiny_batch(const TinyRun& run, std::int64_t first) {
  TinyBatch batch;
  for (std::int64_t s = 0; s < run.batch.micro_batch; ++s) {
    const auto sample = static_cast<std::uint64_t>(first + s);
    const std::vector<std::int32_t> ids = tokens_of(run, sample);
    batch.inputs.insert(batch.inputs.end(), ids.begin(), ids.end() - 1);
    batch.targets.insert(batch.targets.end(), ids.begin() + 1, ids.end());
    for (std::int64_t position = 0; run.ignored && position < run.batch.sequence; ++position) {
      const auto from_end = static_cast<std::size_t>(run.batch.sequence - position);
      if (run.ignored(sample, position)) batch.targets[batch.targets.size() - from_end] = kernels::kIgnoredTarget;
    }
    batch.samples.push_back(sample);
  }
  return batch;
}

}  // namespace trireme::testing
