#include "checkpoint/model_weights.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/check.h"
#include "base/words.h"

namespace trireme::checkpoint {
namespace {

constexpr std::string_view kHead = "lm_head.weight";
constexpr const char* kOtherModel = "the model's config.json must be that of these weights";
constexpr const char* kAgain = "download or copy the weights again";

Failure refused(const std::string& path, std::string rule, std::string nearest) {
  return {path, "", std::move(rule), std::move(nearest), ExitCode::kUsage};
}

// What torch.compile, DDP, FSDP and checkpointed layers put into the names of what they wrap.
std::string without_wrappers(std::string_view name) {
  constexpr std::string_view kWrappers[] = {"_orig_mod", "module", "_fsdp_wrapped_module",
                                            "_checkpoint_wrapped_module"};
  std::vector<std::string_view> parts = split(name, '.');
  std::erase_if(parts, [&](std::string_view part) { return std::ranges::count(kWrappers, part) > 0; });
  return fmt::format("{}", fmt::join(parts, "."));
}

// Buffers that old files carry beside parameters: masks and tables that follow from the model.
bool is_buffer(std::string_view name) {
  constexpr std::string_view kSuffixes[] = {".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq",
                                            ".rotary_emb.cos_cached", ".rotary_emb.sin_cached"};
  return std::ranges::any_of(
      kSuffixes, [&](std::string_view suffix) { return name.ends_with(suffix) || name == suffix.substr(1); });
}

// Names of a parameter: files have the base model's prefix, that of the other family, or, of the bare base model, none;
// and a head may be kept inside of the base model.
std::vector<std::string> names_of(const std::string& name) {
  constexpr std::string_view kBases[] = {"transformer.", "model."};
  std::string bare = name;
  for (const std::string_view base : kBases) {
    if (name.starts_with(base)) bare = name.substr(base.size());
  }
  std::vector<std::string> names{name};
  for (const std::string& other : {std::string(kBases[0]) + bare, std::string(kBases[1]) + bare, bare}) {
    if (other != name) names.push_back(other);
  }
  return names;
}

// Tensors by the names that are looked for.
using Names = std::map<std::string, const StoredTensor*, std::less<>>;

// What stands before the model's own names in all of the file's ("language_model.", or "model." once more).
std::string common_prefix(const Names& names, const model::ParameterTable& table) {
  const std::vector<std::string> first = names_of(table.parameters.front().name);
  for (const std::string& name : first) {
    if (names.contains(name)) return "";
  }
  for (const std::string& name : first) {
    for (const auto& [stored, tensor] : names) {
      if (!stored.ends_with("." + name)) continue;
      const std::string prefix = stored.substr(0, stored.size() - name.size());
      if (std::ranges::all_of(names, [&](const auto& one) { return one.first.starts_with(prefix); })) return prefix;
    }
  }
  return "";
}

Result<Names> names_in(const SafetensorsReader& file, const model::ParameterTable& table, const std::string& path) {
  Names names;
  for (const StoredTensor& tensor : file.tensors()) {
    const std::string name = without_wrappers(tensor.name);
    const auto [entry, added] = names.emplace(name, &tensor);
    if (added) continue;
    return refused(path, fmt::format("{} and {} are both {}", entry->second->name, tensor.name, name), kOtherModel);
  }
  const std::string prefix = common_prefix(names, table);
  if (prefix.empty()) return names;
  Names shorter;
  for (const auto& [name, tensor] : names) shorter.emplace(name.substr(prefix.size()), tensor);
  return shorter;
}

// "a, b, c and 12 more".
std::string first_of(const std::vector<std::string>& names) {
  constexpr std::size_t kTold = 3;
  std::string text = fmt::format(
      "{}", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(std::min(names.size(), kTold)), ", "));
  if (names.size() > kTold) text += fmt::format(" and {} more", names.size() - kTold);
  return text;
}

std::string hint_for_unknown(const std::string& name) {
  for (const std::string_view part : {".lora_", "lora_A", "lora_B"}) {
    if (name.find(part) != std::string::npos) return "an adapter: merge it into its model, and save that";
  }
  for (const std::string_view end :
       {".qweight", ".qzeros", ".weight_scale", ".weight_scale_inv", ".SCB", ".absmax", ".quant_map"}) {
    if (name.ends_with(end)) return "quantised weights: save them as F32, BF16 or F16";
  }
  return kOtherModel;
}

std::string hint_for_missing(const std::vector<std::string>& names) {
  if (names.size() == 1 && names.front() == kHead) {
    return "a file without a head is of a model whose config.json says \"tie_word_embeddings\": true";
  }
  return kOtherModel;
}

// The tensor of each parameter, in the table's order.
class Assignment {
 public:
  Assignment(const Names& names, const model::ParameterTable& table, const std::string& path)
      : names_(names), table_(table), path_(path) {}

  Result<std::vector<const StoredTensor*>> make() {
    std::vector<const StoredTensor*> tensors;
    std::vector<std::string> missing;
    for (const model::Parameter& parameter : table_.parameters) {
      std::vector<const StoredTensor*> found = find(parameter.name);
      // Writers that keep one name of a tensor that two share may keep the head's.
      if (found.empty() && parameter.also_used_by_head) found = find(std::string(kHead));
      if (found.size() > 1) {
        return refused(path_, fmt::format("{} and {} are both {}", found[0]->name, found[1]->name, parameter.name),
                       kOtherModel);
      }
      if (found.empty()) missing.push_back(parameter.name);
      tensors.push_back(found.empty() ? nullptr : found.front());
    }
    if (Status status = check_unknown(); !status.ok()) return status.failure();
    if (!missing.empty()) {
      return refused(path_, fmt::format("there is no tensor {}", first_of(missing)), hint_for_missing(missing));
    }
    for (std::size_t p = 0; p < tensors.size(); ++p) {
      if (Status status = check_kind(table_.parameters[p], *tensors[p]); !status.ok()) return status.failure();
    }
    return tensors;
  }
  // The head of a model that has none of its own, or null.
  const StoredTensor* tied_head() const { return tied_head_; }

 private:
  std::vector<const StoredTensor*> find(const std::string& parameter) {
    std::vector<const StoredTensor*> found;
    for (const std::string& name : names_of(parameter)) {
      const auto stored = names_.find(name);
      if (stored == names_.end()) continue;
      found.push_back(stored->second);
      used_.insert(name);
    }
    return found;
  }

  Status check_unknown() {
    std::vector<std::string> unknown;
    for (const auto& [name, tensor] : names_) {
      if (used_.contains(name) || is_buffer(name)) continue;
      const bool head = table_.config.tied_embeddings && std::ranges::count(names_of(std::string(kHead)), name) > 0;
      if (head && tied_head_ == nullptr) {
        tied_head_ = tensor;
      } else {
        unknown.push_back(tensor->name);
      }
    }
    if (unknown.empty()) return ok_status();
    return refused(path_,
                   fmt::format("{} is no tensor of this model{}", unknown.front(),
                               unknown.size() == 1 ? "" : fmt::format(", nor are {} others", unknown.size() - 1)),
                   hint_for_unknown(unknown.front()));
  }

  Status check_kind(const model::Parameter& parameter, const StoredTensor& stored) const {
    if (stored.shape != parameter.shape) {
      return refused(path_,
                     fmt::format("{} has shape [{}], the model needs [{}]", stored.name, fmt::join(stored.shape, ", "),
                                 fmt::join(parameter.shape, ", ")),
                     kOtherModel);
    }
    if (stored.dtype && converts_to_f32(*stored.dtype)) return ok_status();
    return refused(path_, fmt::format("{} is of type {}; F32, BF16 and F16 are read", stored.name, stored.type),
                   "save the weights as one of these");
  }

  const Names& names_;
  const model::ParameterTable& table_;
  const std::string& path_;
  std::set<std::string, std::less<>> used_;
  const StoredTensor* tied_head_ = nullptr;
};

// Row by row, through a few MiB; the first that differs, or nothing.
std::optional<std::int64_t> first_other_row(const SafetensorsReader& file, const StoredTensor& a,
                                            const StoredTensor& b) {
  constexpr std::int64_t kElements = std::int64_t{1} << 20;
  const std::int64_t rows = a.shape.front(),
                     width = std::max<std::int64_t>(1, a.elements() / std::max<std::int64_t>(1, rows));
  const std::int64_t step = std::max<std::int64_t>(1, kElements / width);
  std::vector<float> one, other;
  for (std::int64_t row = 0; row < rows; row += step) {
    const std::int64_t count = std::min(step, rows - row);
    one.resize(static_cast<std::size_t>(count * width));
    other.resize(one.size());
    file.read_rows(a.name, row, count, one);
    file.read_rows(b.name, row, count, other);
    const auto differs = std::ranges::mismatch(one, other).in1;
    if (differs != one.end()) return row + (differs - one.begin()) / width;
  }
  return std::nullopt;
}

Status check_tied_head(const SafetensorsReader& file, const StoredTensor& head, const StoredTensor& embedding,
                       const std::string& path) {
  constexpr const char* kUntie =
      "a model with a head of its own says \"tie_word_embeddings\": false in its config.json; one without: leave the "
      "tensor out";
  const bool comparable = head.shape == embedding.shape && head.dtype && converts_to_f32(*head.dtype);
  const std::optional<std::int64_t> row = comparable ? first_other_row(file, head, embedding) : std::nullopt;
  if (comparable && !row) return ok_status();
  return refused(path,
                 fmt::format("{} is another tensor than {}{}, and the model's config ties the two", head.name,
                             embedding.name, row ? fmt::format(" (row {} differs)", *row) : ""),
                 kUntie);
}

}  // namespace

Result<ModelWeights> ModelWeights::open(Env& env, const std::string& path, const model::ParameterTable& table,
                                        std::int64_t stored_layers) {
  if (!env.exists(path)) return refused(path, "there is no such file or directory", "");
  Result<SafetensorsReader> opened = SafetensorsReader::open(env, path);
  if (!opened.ok()) {
    Failure failure = opened.failure();
    failure.code = ExitCode::kUsage;  // what the user gave, not what a run has saved
    if (failure.nearest.empty()) failure.nearest = kAgain;
    return failure;
  }
  SafetensorsReader file = std::move(opened).value();
  model::Config whole = table.config;
  whole.layers = std::max(whole.layers, stored_layers);
  const model::ParameterTable stored = model::make_parameter_table(whole);
  const Result<Names> names = names_in(file, stored, path);
  if (!names.ok()) return names.failure();
  Assignment assignment(*names, stored, path);
  const Result<std::vector<const StoredTensor*>> tensors = assignment.make();
  if (!tensors.ok()) return tensors.failure();
  if (const StoredTensor* head = assignment.tied_head()) {
    const int embedding = stored.find(0, model::Role::kTokenEmbedding);
    const Status tied = check_tied_head(file, *head, *(*tensors)[static_cast<std::size_t>(embedding)], path);
    if (!tied.ok()) return tied.failure();
  }
  std::vector<std::string> in_files;
  for (const model::Parameter& parameter : table.parameters) {
    const auto same = std::ranges::find(stored.parameters, parameter.name, &model::Parameter::name);
    TRIREME_CHECK(same != stored.parameters.end(), "{} is not of the whole model", parameter.name);
    in_files.push_back((*tensors)[static_cast<std::size_t>(same - stored.parameters.begin())]->name);
  }
  return ModelWeights(std::move(file), std::move(in_files));
}

void ModelWeights::read_box(std::size_t parameter, plan::Interval rows, plan::Interval columns,
                            std::span<float> out) const {
  const StoredTensor& tensor = *file_.find(names_[parameter]);
  const bool vector = tensor.shape.size() == 1;
  const std::int64_t begin[] = {rows.begin, columns.begin}, extent[] = {rows.length(), columns.length()};
  const std::size_t dimensions = vector ? 1 : 2;
  file_.read_slice(tensor.name, std::span(begin).first(dimensions), std::span(extent).first(dimensions), out);
  const auto bad = std::ranges::find_if(out, [](float value) { return !std::isfinite(value); });
  if (bad == out.end()) return;
  const std::int64_t at = bad - out.begin();
  const std::int64_t row = rows.begin + at / columns.length(), column = columns.begin + at % columns.length();
  throw Error(ExitCode::kDiverged, "weights", "read " + file_.files()[tensor.file],
              fmt::format("{} is not finite: {} at [{}]", tensor.name, std::isnan(*bad) ? "NaN" : "infinity",
                          vector ? fmt::format("{}", row) : fmt::format("{}, {}", row, column)),
              "weights of an earlier step, or another copy of the file");
}

}  // namespace trireme::checkpoint
