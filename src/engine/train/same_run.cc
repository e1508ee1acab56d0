#include "engine/train/same_run.h"

#include <algorithm>

#include <fmt/format.h>
#include <xxhash.h>

#include "engine/train/foreign_names.h"

namespace trireme::train {
namespace {

// Keys that shape the loss curve, and may change if the user says so.
constexpr const char* kAcceptable[] = {"train.steps",
                                       "train.precision",
                                       "train.fp32_gradients",
                                       "train.seed",
                                       "train.global_batch",
                                       "data.ignore",
                                       "optimizer.learning_rate",
                                       "optimizer.min_learning_rate",
                                       "optimizer.warmup_steps",
                                       "optimizer.decay_steps",
                                       "optimizer.decay",
                                       "optimizer.beta1",
                                       "optimizer.beta2",
                                       "optimizer.epsilon",
                                       "optimizer.weight_decay",
                                       "optimizer.clip_norm",
                                       "optimizer.loss_scale",
                                       "optimizer.loss_scale_growth"};
constexpr const char* kDataKey = "data.train";

const Json* find_key(const Json& run, const std::string& key) {
  const std::size_t dot = key.find('.');
  const Json* section = run.find(key.substr(0, dot));
  return section == nullptr ? nullptr : section->find(key.substr(dot + 1));
}

std::string text_of(const Json* value) {
  if (value == nullptr) return "nothing";
  return value->is_string() ? value->as_string() : value->dump();
}

bool accepted(const RunConfig& config, const std::string& key) {
  return std::find(config.accept.begin(), config.accept.end(), key) != config.accept.end();
}

// The first member that differs.
std::string first_difference(const Json& a, const Json& b) {
  if (const Json* one = a.find("model_type"), *other = b.find("model_type"); text_of(one) != text_of(other)) {
    return fmt::format("it is a {}, this model a {}", text_of(one), text_of(other));
  }
  for (const auto& [key, value] : a.as_object()) {
    const Json* other = b.find(key);
    if (other == nullptr || !(*other == value)) {
      return fmt::format("its {} is {}, this model's is {}", key, value.dump(), text_of(other));
    }
  }
  for (const auto& [key, value] : b.as_object()) {
    if (a.find(key) == nullptr) return fmt::format("it has no {}, this model's is {}", key, value.dump());
  }
  return "";
}

}  // namespace

Status check_accepted_keys(const std::vector<std::string>& accept) {
  std::vector<std::string> known(std::begin(kAcceptable), std::end(kAcceptable));
  known.push_back(kDataKey);
  for (const std::string& key : accept) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    std::string nearest = nearest_word(key, known);
    const ForeignNames* foreign = nearest.empty() ? find_foreign(key) : nullptr;
    if (foreign != nullptr && std::find(known.begin(), known.end(), foreign->key) != known.end())
      nearest = foreign->key;
    return Failure{.option = "checkpoint.accept",
                   .value = key,
                   .rule = "is not a key whose change must be accepted",
                   .nearest = nearest};
  }
  return ok_status();
}

Json data_identity(const data::Sampler& tokens) {
  constexpr std::int64_t kPlaces = 64, kTokens = 256;
  const data::TokenFile& file = tokens.file();
  const auto length = static_cast<std::size_t>(std::min(kTokens, file.tokens()));
  std::vector<std::uint32_t> whole(file.tokens() <= kPlaces * kTokens ? static_cast<std::size_t>(file.tokens()) : 0);
  file.read_raw(0, whole);  // a small file is read once
  std::vector<std::uint32_t> sample(kPlaces * length);
  for (std::int64_t place = 0; place < kPlaces; ++place) {
    const std::int64_t begin = (file.tokens() - static_cast<std::int64_t>(length)) * place / (kPlaces - 1);
    const auto part = std::span(sample).subspan(static_cast<std::size_t>(place) * length, length);
    if (whole.empty()) {
      file.read_raw(begin, part);
    } else {
      std::ranges::copy(std::span(whole).subspan(static_cast<std::size_t>(begin), length), part.begin());
    }
  }
  const std::uint64_t hash = XXH3_64bits(sample.data(), sample.size() * sizeof(std::uint32_t));
  return Json::object({{"tokens", file.tokens()}, {"sampled_xxh3", fmt::format("{:016x}", hash)}});
}

Status check_same_run(const checkpoint::Manifest& manifest, const std::string& path, const ResolvedRun& run,
                      const Json& data) {
  const auto refused = [&](std::string rule, std::string nearest) {
    return Failure{.option = "checkpoint", .value = path, .rule = std::move(rule), .nearest = std::move(nearest)};
  };
  // What the two say to a reader: the documents may differ in what changes nothing.
  const Result<model::Config> trained = model::parse_config(manifest.model, path);
  if (!trained) return refused("its model is not read here: " + trained.failure().sentence(), "");
  const std::string model =
      first_difference(model::to_hugging_face(*trained), model::to_hugging_face(run.plan.table.config));
  if (!model.empty()) return refused("is of another model: " + model, "the model.config that it was trained with");
  if (manifest.run.as_object().empty()) return ok_status();  // imported: of no run yet
  const Json now = to_json(run.config);
  if (const Json* sequence = find_key(manifest.run, "train.sequence");
      sequence != nullptr && text_of(sequence) != text_of(find_key(now, "train.sequence"))) {
    return refused(fmt::format("its run has train.sequence {}, this one {}: samples would be others", sequence->dump(),
                               run.config.batch.sequence),
                   sequence->dump());
  }
  std::vector<std::string> changed, words;
  const Json defaults = to_json(RunConfig{});
  for (const char* key : kAcceptable) {
    const Json* before = find_key(manifest.run, key);
    if (before == nullptr) before = find_key(defaults, key);  // the program of that run did not know it
    const Json* after = find_key(now, key);
    if (text_of(before) == text_of(after)) continue;
    if (accepted(run.config, key)) continue;
    words.push_back(fmt::format("{} was {} and is {}", key, text_of(before), text_of(after)));
    changed.emplace_back(key);
  }
  if (!(manifest.data == data) && !accepted(run.config, kDataKey)) {
    words.push_back(fmt::format("{} holds other tokens", kDataKey));
    changed.emplace_back(kDataKey);
  }
  if (changed.empty()) return ok_status();
  return refused(fmt::format("would go on as another run: {}", fmt::join(words, "; ")),
                 fmt::format("the values that it had, or --accept {}", fmt::join(changed, ",")));
}

}  // namespace trireme::train
