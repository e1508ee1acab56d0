#include "engine/data/sampler.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/check.h"
#include "base/random.h"
#include "base/units.h"

namespace trireme::data {

Result<SampleOrder> SampleOrder::make(const std::string& what, std::int64_t tokens, std::int64_t sequence,
                                      std::uint64_t seed, Order order) {
  TRIREME_CHECK_GT(sequence, 0);
  if (tokens <= sequence) {
    return Failure{
        what, "", fmt::format("text has {} tokens, one sample needs {}", tokens, sequence + 1),
        tokens >= 2 ? fmt::format("a longer text, or a sequence of at most {}", tokens - 1) : "use a longer text"};
  }
  return SampleOrder(sequence, (tokens - 1) / sequence, seed, order);
}

Sample SampleOrder::sample_at(std::int64_t index) const {
  TRIREME_CHECK_GE(index, 0);
  Sample sample{index, index / samples_, index % samples_, 0};
  if (order_ == Order::kShuffled) {
    const RandomKey key{seed_, stream_of("epoch", static_cast<std::uint64_t>(sample.epoch))};
    sample.window = static_cast<std::int64_t>(
        permute_index(static_cast<std::uint64_t>(sample.window), static_cast<std::uint64_t>(samples_), key));
  }
  sample.first_token = sample.window * sequence_;
  return sample;
}

Result<Sampler> Sampler::open(Env& env, const SamplerOptions& options) {
  Result<TokenFile> file = TokenFile::open(env, options.path, options.vocabulary, options.token_bytes);
  if (!file.ok()) return file.failure();
  const Result<SampleOrder> order =
      SampleOrder::make(options.path, file->tokens(), options.sequence, options.seed, options.order);
  if (!order.ok()) return order.failure();
  return Sampler(std::move(file).value(), *order);
}

void Sampler::fill_batch(std::int64_t first_sample, std::int64_t count, std::span<std::int32_t> inputs,
                         std::span<std::int32_t> targets) const {
  const std::int64_t elements = checked_multiply(count, sequence());
  TRIREME_CHECK_EQ(static_cast<std::int64_t>(inputs.size()), elements);
  TRIREME_CHECK_EQ(static_cast<std::int64_t>(targets.size()), elements);
  const auto length = static_cast<std::size_t>(sequence());
  std::vector<std::int32_t> tokens(length + 1);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::size_t at = static_cast<std::size_t>(i) * length;
    file_.read(sample_at(first_sample + i).first_token, tokens);
    std::ranges::copy(std::span(tokens).first(length), inputs.subspan(at).begin());
    std::ranges::copy(std::span(tokens).last(length), targets.subspan(at).begin());
  }
}

}  // namespace trireme::data
