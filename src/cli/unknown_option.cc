#include "cli/unknown_option.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "base/json.h"
#include "engine/train/foreign_names.h"

namespace trireme::cli {
namespace {

constexpr const char* kRule = "unknown option";

std::string without_dashes(const std::string& option) {
  return option.substr(std::min(option.find_first_not_of('-'), option.size()));
}

std::string meant(const std::string& option) { return fmt::format("did you mean {}?", option); }

// The option of the command that is near; "" where none is.
std::string near_option(const std::string& name, const std::vector<std::string>& known) {
  std::vector<std::string> names;
  for (const std::string& option : known) names.push_back(without_dashes(option));
  const std::string nearest = nearest_word(without_dashes(name), names);
  if (nearest.empty()) return "";
  return known[static_cast<std::size_t>(std::ranges::find(names, nearest) - names.begin())];
}

}  // namespace

Failure unknown_option(const std::string& word, const std::vector<std::string>& known, bool takes_keys) {
  const std::string name = word.substr(0, word.find('='));
  const auto says = [&](std::string rule, std::string nearest) {
    return Failure{.option = name, .value = "", .rule = std::move(rule), .nearest = std::move(nearest)};
  };
  std::vector<std::string> options;
  std::ranges::copy_if(known, std::back_inserter(options),
                       [](const auto& option) { return option.starts_with("--") && option != "--help"; });
  const std::string all = options.empty()
                              ? ""
                              : fmt::format("known: {}{}", fmt::join(options, ", "),
                                            takes_keys ? ", and every key of run.toml as --section.key" : "");
  const train::ForeignNames* foreign = train::find_foreign(name);
  if (foreign != nullptr) {
    const std::string flag = fmt::format("--{}", foreign->flag);
    if (std::ranges::find(options, flag) != options.end() && flag != name) return says(kRule, meant(flag));
  }
  if (const std::string near = near_option(name, options); !near.empty()) return says(kRule, meant(near));
  if (takes_keys) {
    const Failure key = train::unknown_key(without_dashes(name));
    const bool is_key = !key.nearest.empty() && key.nearest.find(' ') == std::string::npos;
    if (is_key) return says(kRule, meant("--" + key.nearest));
    if (!key.nearest.empty()) return says(kRule, key.nearest);
  }
  // Other advice is of runs, and this command takes none of their keys.
  if (foreign != nullptr && foreign->advice.ends_with("not planned or trained yet"))
    return says(std::string(foreign->advice), all);
  return says(kRule, all);
}

}  // namespace trireme::cli
