#include "cli/plan_question.h"

#include <algorithm>
#include <cstdio>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "base/words.h"
#include "cli/not_computed.h"
#include "cli/plan_values.h"
#include "model/parameters.h"

namespace trireme::cli {
namespace {

constexpr int kMostSize = 1 << 24;

void replace_all(std::string& text, std::string_view what, std::string_view by) {
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size())) {
    text.replace(at, what.size(), by);
  }
}

template <class T>
T value_or_refuse(const std::string& flag, Result<T> result) {
  if (result.ok()) return *std::move(result);
  Failure failure = result.failure();
  failure.option = flag;
  throw Error(failure);
}

// The optional values of a layout, by their names on the command line.
struct WantedField {
  std::string name;
  std::function<void(const std::string& flag, const std::string& text, planner::Wanted& wanted)> read;
};

WantedField whole(std::string name, std::optional<int> planner::Wanted::*member) {
  return {std::move(name), [member](const std::string& flag, const std::string& text, planner::Wanted& wanted) {
            wanted.*member = whole_number(flag, text, "4", kMostSize);
          }};
}

bool on_or_off(const std::string& flag, const std::string& text) {
  if (text != "on" && text != "off") refuse(flag, text, "is not known", "on, off");
  return text == "on";
}

int zero_stage(const std::string& flag, const std::string& text) {
  if (text.size() != 1 || text[0] < '0' || text[0] > '3') refuse(flag, text, "ZeRO has four stages", "0, 1, 2, 3");
  return text[0] - '0';
}

const std::vector<WantedField>& wanted_fields() {
  using planner::Wanted;
  static const std::vector<WantedField> fields{
      whole("tp", &Wanted::tp),
      whole("pp", &Wanted::pp),
      whole("dp", &Wanted::dp),
      whole("interleave", &Wanted::interleave),
      {"zero", [](const std::string& flag, const std::string& text, Wanted& w) { w.zero = zero_stage(flag, text); }},
      {"micro-batch", [](const std::string& flag, const std::string& text,
                         Wanted& w) { w.micro_batch = whole_number(flag, text, "1", kMostSize); }},
      {"schedule", [](const std::string& flag, const std::string& text,
                      Wanted& w) { w.schedule = value_or_refuse(flag, plan::parse_schedule(text)); }},
      {"recompute", [](const std::string& flag, const std::string& text,
                       Wanted& w) { w.recompute = value_or_refuse(flag, model::parse_recompute(text)); }},
      {"sequence-parallel", [](const std::string& flag, const std::string& text,
                               Wanted& w) { w.sequence_parallel = on_or_off(flag, text); }},
      {"order", [](const std::string& flag, const std::string& text,
                   Wanted& w) { w.order = value_or_refuse(flag, plan::parse_axis_order(text)); }},
  };
  return fields;
}

// A refusal of config.json's keys, under the names of the flags that gave them.
model::Config parse_sizes(const Json& config) {
  constexpr const char* kWhat = "the model by sizes";
  Result<model::Config> parsed = model::parse_config(config, kWhat);
  if (parsed.ok()) return *std::move(parsed);
  Failure failure = parsed.failure();
  if (failure.option.rfind(kWhat, 0) == 0) failure.option.erase(0, std::string_view(kWhat).size() + 2);
  constexpr std::pair<std::string_view, std::string_view> kFlags[] = {{"num_key_value_heads", "--kv-heads"},
                                                                      {"num_attention_heads", "--heads"},
                                                                      {"n_head", "--heads"},
                                                                      {"num_hidden_layers", "--layers"},
                                                                      {"n_layer", "--layers"},
                                                                      {"hidden_size", "--hidden"},
                                                                      {"max_position_embeddings", "--positions"},
                                                                      {"n_positions", "--positions"},
                                                                      {"n_embd", "--hidden"},
                                                                      {"intermediate_size", "--ffn"},
                                                                      {"n_inner", "--ffn"},
                                                                      {"head_dim", "--head-dim"},
                                                                      {"vocab_size", "--vocabulary"}};
  for (std::string* text : {&failure.option, &failure.rule, &failure.nearest}) {
    for (const auto& [key, flag] : kFlags) replace_all(*text, key, flag);
  }
  throw Error(failure);
}

void read_wanted(const std::string& name, const std::string& flag, const std::string& text, planner::Wanted& wanted) {
  std::vector<std::string> known;
  for (const WantedField& field : wanted_fields()) {
    if (field.name == name) return field.read(flag, text, wanted);
    known.push_back(field.name);
  }
  refuse(flag.substr(0, flag.find(' ')), name, "is no part of a layout", nearest_word(name, known));
}

}  // namespace

void ModelFlags::declare(Command& command) {
  command.positional("model", path, "config.json, or a directory that holds one", false);
  command.option("family", family, "of a model by sizes: llama (gated MLP, rotary positions; the default) or gpt2");
  command.option("layers", layers, "a model by its sizes: decoder layers");
  command.option("hidden", hidden, "residual width");
  command.option("heads", heads, "query heads");
  command.option("kv-heads", kv_heads, "key and value heads (default: heads)");
  command.option("head-dim", head_dim, "width of a head (default: hidden / heads)");
  command.option("ffn", ffn, "width inside the MLP (default: 4 x hidden)");
  command.option("vocabulary", vocabulary, "(default: 51200)");
  command.option("positions", positions, "most tokens of a sequence (default: --sequence, or 2048)");
  command.flag("tied", tied, "embedding and head are one tensor");
}

std::pair<std::string, std::string> ModelFlags::given_size_flag() const {
  const std::pair<const char*, const std::string&> sizes[] = {
      {"--layers", layers},     {"--hidden", hidden}, {"--heads", heads},           {"--kv-heads", kv_heads},
      {"--head-dim", head_dim}, {"--ffn", ffn},       {"--vocabulary", vocabulary}, {"--positions", positions}};
  for (const auto& [flag, value] : sizes) {
    if (!value.empty()) return {flag, value};
  }
  if (tied) return {"--tied", ""};
  if (!family.empty()) return {"--family", family};
  return {};
}

// Sizes that a config.json has said already.
void ModelFlags::check_agreement(const model::Config& config) const {
  const std::tuple<const char*, const std::string&, std::int64_t> sizes[] = {
      {"--layers", layers, config.layers},
      {"--hidden", hidden, config.hidden},
      {"--heads", heads, config.heads},
      {"--kv-heads", kv_heads, config.kv_heads},
      {"--head-dim", head_dim, config.head_dim},
      {"--ffn", ffn, config.ffn},
      {"--vocabulary", vocabulary, config.vocabulary},
      {"--positions", positions, config.max_positions}};
  for (const auto& [flag, text, said] : sizes) {
    if (text.empty() || whole_number(flag, text, "4096", kMostSize) == said) continue;
    refuse(flag, text, fmt::format("the model's config.json says {}", said), "leave it out");
  }
  const std::string said = model::family_name(config.family);
  if (!family.empty() && family != said) {
    refuse("--family", family, fmt::format("the model's config.json says {}", said), "leave it out");
  }
  if (tied && !config.tied_embeddings) {
    refuse("--tied", "", "the model's config.json says that embedding and head are two tensors", "leave it out");
  }
}

model::Config ModelFlags::read(Env& env, const std::string& sequence) const {
  if (path.empty()) return from_sizes(sequence);
  const model::ConfigReading reading = model::load_config_reading(env, path).or_throw();
  note_not_computed(reading);
  model::Config config = reading.config;
  check_agreement(config);
  const std::int64_t asked = sequence.empty() ? 0 : whole_number("--sequence", sequence, "4096", kMostSize);
  if (asked > config.max_positions && config.position == model::PositionKind::kRotary) {
    const std::string note =
        fmt::format("note: --sequence {} is beyond the {} positions of {}: planned as if it had as many\n", sequence,
                    config.max_positions, path);
    std::fputs(note.c_str(), stderr);
    config.max_positions = asked;
  }
  return config;
}

model::Config ModelFlags::from_sizes(const std::string& sequence) const {
  if (given_size().empty()) {
    refuse("model", "", "is needed", "give a config.json, or --layers, --hidden and --heads");
  }
  Json config;
  const bool gpt2 = family == "gpt2";
  if (!gpt2 && !family.empty() && family != "llama") refuse("--family", family, "is not known", "llama, gpt2");
  const auto number = [&](const std::string& flag, const std::string& text, const std::string& example = "4096") {
    return std::int64_t{whole_number(flag, text, example, kMostSize)};
  };
  const auto number_or = [&](const std::string& flag, const std::string& text, std::int64_t otherwise) {
    return text.empty() ? otherwise : number(flag, text);
  };
  const std::int64_t width = number("--hidden", hidden), query_heads = number("--heads", heads, "32");
  if (head_dim.empty() && width % query_heads != 0) {
    refuse("--hidden", hidden, fmt::format("must be divisible by --heads ({}), or --head-dim be given", heads),
           fmt::format("{}", width / query_heads * query_heads + query_heads));
  }
  config["model_type"] = gpt2 ? "gpt2" : "llama";
  config[gpt2 ? "n_layer" : "num_hidden_layers"] = number("--layers", layers, "32");
  config[gpt2 ? "n_embd" : "hidden_size"] = width;
  config[gpt2 ? "n_head" : "num_attention_heads"] = query_heads;
  config[gpt2 ? "n_inner" : "intermediate_size"] = number_or("--ffn", ffn, 4 * width);
  config["vocab_size"] = number_or("--vocabulary", vocabulary, 51200);
  config[gpt2 ? "n_positions" : "max_position_embeddings"] =
      number_or("--positions", positions, number_or("--sequence", sequence, 2048));
  config["tie_word_embeddings"] = tied;
  const std::int64_t keys = number_or("--kv-heads", kv_heads, query_heads);
  const std::int64_t of_head = number_or("--head-dim", head_dim, width / query_heads);
  if (!gpt2) {
    config["num_key_value_heads"] = keys;
    config["head_dim"] = of_head;
  } else if (keys != query_heads || of_head * query_heads != width) {
    const bool by_keys = keys != query_heads;
    refuse(by_keys ? "--kv-heads" : "--head-dim", by_keys ? kv_heads : head_dim,
           fmt::format("gpt2 has as many key heads as query heads ({}), of hidden / heads ({})", query_heads,
                       width / query_heads),
           "use --family llama");
  }
  return parse_sizes(config);
}

void RunFlags::declare(Command& command) {
  command.option("cluster", cluster, "cluster.toml, or a preset: a100-40, a100-80, h100:2048, ...");
  command.option("devices", devices, "as many of the cluster's devices (whole hosts)");
  command.option("batch", batch, "global batch, in sequences");
  command.option("sequence", sequence, "tokens of a sequence (default: the model's positions, at most 8192)");
  command.option("precision", precision, "bf16, fp16 (at the rate of bf16) or fp32");
  command.option("framework", framework, "whose layers and buffers: trireme, megatron, fsdp, nanotron, ...");
  command.option("calibration", calibration, "file with constants over the default ones");
  command.flag("fp32-gradients", fp32_gradients, "bf16 or fp16 with gradients in fp32: 18 bytes a parameter");
}

DType RunFlags::compute() const {
  const Result<DType> compute = plan::parse_precision(precision);
  if (!compute) refuse("--precision", precision, compute.failure().rule, compute.failure().nearest);
  return *compute;
}

planner::Calibration RunFlags::read_calibration(Env& env) const {
  if (!calibration.empty() && (!env.exists(calibration) || env.is_directory(calibration))) {
    refuse("--calibration", calibration, env.exists(calibration) ? "is a directory" : "there is no such file",
           "give the path of a calibration file");
  }
  return planner::load_calibration(env, calibration).or_throw();
}

cluster::Cluster RunFlags::read_cluster(Env& env) const {
  if (cluster.empty()) {
    refuse("--cluster", "", "is needed",
           fmt::format("a file, or a preset: {}", fmt::join(cluster::preset_names(), ", ")));
  }
  Result<cluster::Cluster> loaded = cluster::load_cluster(env, cluster);
  if (!loaded) {
    Failure failure = loaded.failure();
    // Of the words of --cluster; what is wrong inside a file keeps the file's name.
    if (failure.option == "cluster" || failure.option == "devices") failure.option = "--cluster";
    throw Error(failure);
  }
  cluster::Cluster read = *std::move(loaded);
  if (devices.empty()) return read;
  return value_or_refuse("--devices",
                         cluster::with_devices(read, whole_number("--devices", devices, "512", kMostSize)));
}

std::int64_t RunFlags::read_sequence(const model::Config& config) const {
  if (sequence.empty()) return std::min<std::int64_t>(config.max_positions, 8192);
  return whole_number("--sequence", sequence, "4096", kMostSize);
}

planner::Problem RunFlags::problem(Env& env, const model::Config& config, const cluster::Cluster& on) const {
  const std::int64_t sequences = whole_number("--batch", batch, "1024", kMostSize);
  Result<planner::Problem> made =
      planner::make_problem(config, on, sequences, read_sequence(config), compute(), read_calibration(env), framework);
  if (!made) {
    Failure failure = made.failure();
    failure.option = "--" + failure.option;
    throw Error(failure);
  }
  planner::Problem problem = *std::move(made);
  if (fp32_gradients && is_narrow(problem.inputs.compute)) planner::keep_gradients_in_fp32(problem);
  return problem;
}

void LayoutFlags::declare(Command& command) {
  command.option("tp", tp, "tensor-parallel degree");
  command.option("pp", pp, "pipeline stages");
  command.option("dp", dp, "data-parallel degree");
  command.option("interleave", interleave, "model chunks a stage (the search tries up to 64)");
  command.option("zero", zero, "ZeRO stage, 0 to 3");
  command.option("micro-batch", micro_batch, "sequences");
  command.option("schedule", schedule, "gpipe, 1f1b, interleaved, zb-h1");
  command.option("recompute", recompute, "none, selective, full");
  command.option("sequence-parallel", sequence_parallel, "on or off");
  command.option("order", order, "tp-pp-dp or tp-dp-pp");
  command.flag("allow-slow-tp", allow_slow_tp, "tensor parallelism across hosts");
}

planner::Wanted LayoutFlags::read() const {
  planner::Wanted wanted{.allow_slow_tp = allow_slow_tp};
  for (const auto& [name, text] : values()) {
    if (!text.empty()) read_wanted(name, "--" + name, text, wanted);
  }
  return wanted;
}

std::vector<std::pair<std::string, std::string>> LayoutFlags::values() const {
  return {{"tp", tp},
          {"pp", pp},
          {"dp", dp},
          {"interleave", interleave},
          {"zero", zero},
          {"micro-batch", micro_batch},
          {"schedule", schedule},
          {"recompute", recompute},
          {"sequence-parallel", sequence_parallel},
          {"order", order}};
}

std::pair<std::string, std::string> LayoutFlags::given_flag() const {
  for (const auto& [name, text] : values()) {
    if (!text.empty()) return {"--" + name, text};
  }
  return {};
}

planner::Wanted parse_wanted(const std::string& flag, const std::string& text) {
  planner::Wanted wanted;
  std::set<std::string> given;
  for (const std::string_view part : split(text, ',')) {
    const std::string item(part);
    const std::size_t equals = item.find('=');
    if (equals == std::string::npos) {
      refuse(flag, text, "must be a list of name=value", fmt::format("write it like {} tp=16,pp=4", flag));
    }
    const std::string name = item.substr(0, equals);
    if (!given.insert(name).second) refuse(flag, text, fmt::format("gives {} twice", name), "leave one out");
    read_wanted(name, flag + " " + name, item.substr(equals + 1), wanted);
  }
  return wanted;
}

Failure with_flags(Failure failure) {
  if (failure.option == "layout.sequence_parallel") {
    failure.value = failure.value == "true" ? "on" : "off";
    replace_all(failure.nearest, "false", "off");
  }
  constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"train.global_batch", "--batch"},     {"train.", "--"},
      {"layout.schedule = ", "--schedule "}, {"layout.", "--"},
      {"micro_batch", "micro-batch"},        {"sequence_parallel", "sequence-parallel"}};
  for (std::string* text : {&failure.option, &failure.rule, &failure.nearest}) {
    for (const auto& [name, flag] : kNames) replace_all(*text, name, flag);
  }
  return failure;
}

void refuse_layout(Failure failure) { throw Error(with_flags(std::move(failure))); }

std::string model_line(const model::Config& config) {
  return fmt::format("{}: {} parameters, {} layers, hidden {}, {} heads ({} key/value), ffn {}, vocabulary {}",
                     model::family_name(config.family), format_exact(model::make_parameter_table(config).total()),
                     config.layers, config.hidden, config.heads, config.kv_heads, config.ffn, config.vocabulary);
}

std::string cluster_line(const cluster::Cluster& cluster) {
  return fmt::format("{} x {} ({} host{} of {})", format_exact(cluster.devices()), cluster.device.name,
                     format_exact(cluster.hosts), cluster.hosts == 1 ? "" : "s", cluster.devices_per_host);
}

}  // namespace trireme::cli
