#pragma once

// Text to token ids and back.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace trireme::data {

// Immutable, so any number of threads may use it.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual std::string_view name() const = 0;
  virtual std::int64_t vocabulary_size() const = 0;
  virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;
  // Ids must be below vocabulary_size(). decode(encode(text)) == text.
  virtual std::string decode(std::span<const std::int32_t> tokens) const = 0;
};

// By name: "byte" (one token a byte, id = byte, vocabulary 256).
Result<std::unique_ptr<Tokenizer>> make_tokenizer(std::string_view name);

}  // namespace trireme::data
