#include "cli/run_description.h"

#include <charconv>

#include <fmt/format.h>

#include "base/check.h"
#include "base/json.h"

namespace trireme::cli {
namespace {

constexpr std::size_t kLongest = 120'000;  // Linux takes 128 KiB for a variable with its name

// Characters of JSON that stand for themselves; the others as %XX.
bool is_plain(char c) { return c > ' ' && c <= '~' && c != ';' && c != '%'; }

std::string escaped(std::string_view text) {
  std::string word;
  for (const char c : text) {
    if (is_plain(c)) {
      word += c;
    } else {
      word += fmt::format("%{:02X}", static_cast<unsigned>(static_cast<unsigned char>(c)));
    }
  }
  return word;
}

std::optional<std::string> unescaped(std::string_view word) {
  std::string text;
  for (std::size_t i = 0; i < word.size(); ++i) {
    if (word[i] != '%') {
      text += word[i];
      continue;
    }
    unsigned value = 0;
    const std::string_view digits = word.substr(i + 1, 2);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
    if (digits.size() != 2 || error != std::errc() || end != digits.data() + 2) return std::nullopt;
    text += static_cast<char>(static_cast<unsigned char>(value));
    i += 2;
  }
  return text;
}

Error broken() {
  return Error(Failure{.option = kRunVariable,
                       .value = "",
                       .rule = "does not hold what the supervisor of a run hands to its workers",
                       .nearest = "trireme train"});
}

}  // namespace

Result<std::string> to_word(const RunDescription& description) {
  TRIREME_CHECK(description.model.has_value(), "the model was not read");
  const Json document = Json::object({{"run", train::to_json(description.config)}, {"model", *description.model}});
  std::string word = escaped(document.dump());
  if (word.size() <= kLongest) return word;
  return Failure{.option = "run file",
                 .value = fmt::format("{} characters", word.size()),
                 .rule = fmt::format("workers are handed at most {}", kLongest),
                 .nearest = "supervise.hosts in a file of its own, shorter paths"};
}

RunDescription description_of(const std::string& word,
                              const std::vector<std::pair<std::string, std::string>>& overrides) {
  const std::optional<std::string> text = unescaped(word);
  if (!text) throw broken();
  const Result<Json> document = parse_json(*text, kRunVariable);
  if (!document) throw broken();
  const Json* run = document->is_object() ? document->find("run") : nullptr;
  const Json* model = document->is_object() ? document->find("model") : nullptr;
  if (run == nullptr || !run->is_object() || model == nullptr || !model->is_object()) throw broken();
  return {.config = train::make_run_config(*run, overrides).or_throw(), .model = *model, .cluster = std::nullopt};
}

}  // namespace trireme::cli
