#pragma once

// Which tokens sample number i is made of: a function of seed and i alone. No rank, no thread and no history
// enters, so the data position of a run is one number, and a checkpoint resumes on any layout.
//
// The text is cut into windows of `sequence` tokens (plus the one after, the last target); what is left at
// the end is not used. Every epoch visits each window once, in an order of its own.

#include <cstdint>
#include <span>
#include <string>

#include "base/env.h"
#include "base/error.h"
#include "engine/data/token_file.h"

namespace trireme::data {

enum class Order {
  kShuffled,  // training: each epoch a keyed permutation
  kInOrder,   // validation
};

struct Sample {
  std::int64_t index = 0;        // as asked
  std::int64_t epoch = 0;        // from 0
  std::int64_t window = 0;       // of the text
  std::int64_t first_token = 0;  // window * sequence
  friend bool operator==(const Sample&, const Sample&) = default;
};

// The order, without the text.
class SampleOrder {
 public:
  // Refused: a text too short for one sample. `what` names it.
  static Result<SampleOrder> make(const std::string& what, std::int64_t tokens, std::int64_t sequence,
                                  std::uint64_t seed, Order order);

  std::int64_t sequence() const { return sequence_; }
  std::int64_t samples_per_epoch() const { return samples_; }
  // index >= 0, without an upper limit: epochs follow one another.
  Sample sample_at(std::int64_t index) const;

 private:
  SampleOrder(std::int64_t sequence, std::int64_t samples, std::uint64_t seed, Order order)
      : sequence_(sequence), samples_(samples), seed_(seed), order_(order) {}

  std::int64_t sequence_;
  std::int64_t samples_;
  std::uint64_t seed_;
  Order order_;
};

struct SamplerOptions {
  std::string path;
  std::int64_t vocabulary = 0;
  std::int64_t sequence = 0;
  std::uint64_t seed = 0;  // not used where the order is kInOrder
  Order order = Order::kShuffled;
  std::int64_t token_bytes = 0;  // as TokenFile::open has it
};

// A token file read in that order. Immutable, so any number of rank threads may share one.
class Sampler {
 public:
  static Result<Sampler> open(Env& env, const SamplerOptions& options);

  const TokenFile& file() const { return file_; }
  std::int64_t sequence() const { return order_.sequence(); }
  std::int64_t samples_per_epoch() const { return order_.samples_per_epoch(); }
  Sample sample_at(std::int64_t index) const { return order_.sample_at(index); }

  // Samples [first_sample, first_sample + count) of the whole run, whichever rank asks. inputs, targets:
  // [count, sequence]; a target is the token after its input. Error as TokenFile::read.
  void fill_batch(std::int64_t first_sample, std::int64_t count, std::span<std::int32_t> inputs,
                  std::span<std::int32_t> targets) const;

 private:
  Sampler(TokenFile file, SampleOrder order) : file_(std::move(file)), order_(order) {}

  TokenFile file_;
  SampleOrder order_;
};

}  // namespace trireme::data
