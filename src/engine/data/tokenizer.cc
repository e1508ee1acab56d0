#include "engine/data/tokenizer.h"

#include "base/check.h"

namespace trireme::data {
namespace {

class ByteTokenizer : public Tokenizer {
 public:
  std::string_view name() const override { return "byte"; }
  std::int64_t vocabulary_size() const override { return 256; }

  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<std::int32_t> tokens;
    tokens.reserve(text.size());
    for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
    return tokens;
  }

  std::string decode(std::span<const std::int32_t> tokens) const override {
    std::string text;
    text.reserve(tokens.size());
    for (const std::int32_t token : tokens) {
      TRIREME_CHECK(token >= 0 && token < vocabulary_size(), "token {} of a vocabulary of {}", token,
                    vocabulary_size());
      text += static_cast<char>(token);
    }
    return text;
  }
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> make_tokenizer(std::string_view name) {
  if (name == "byte") return std::unique_ptr<Tokenizer>(std::make_unique<ByteTokenizer>());
  return Failure{"data.tokenizer", std::string(name), "is no tokenizer of this program", "byte"};
}

}  // namespace trireme::data
