#include "engine/train/run_config.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/words.h"
#include "engine/train/foreign_names.h"
#include "engine/train/run_keys.h"

namespace trireme::train {
namespace {

const RunKey* find_key(std::string_view name) {
  for (const RunKey& key : run_keys()) {
    if (key.name == name) return &key;
  }
  return nullptr;
}

// Keys whose default follows from others.
struct Given {
  bool reduce = false;      // layout.reduce
  bool hang_floor = false;  // supervise.hang_floor
};

bool has(const Json& file, std::string_view section, std::string_view name) {
  const Json* table = file.find(section);
  return table != nullptr && table->is_object() && table->find(name) != nullptr;
}

// The text of an override as the value that its key takes.
Result<Json> override_value(const RunKey& key, const std::string& text) {
  if (key.kind == "text") return Json(text);
  if (key.kind == "true or false") {
    if (text == "true") return Json(true);
    if (text == "false") return Json(false);
    return wrong(key.name, text, "must be true or false");
  }
  std::int64_t integer = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), integer);
  if (error == std::errc() && end == text.data() + text.size()) return Json(integer);
  double signed_number = 0.0;
  const auto [number_end, number_error] = std::from_chars(text.data(), text.data() + text.size(), signed_number);
  const bool plain = number_error == std::errc() && number_end == text.data() + text.size();
  if (plain && !std::isfinite(signed_number)) {
    return wrong(key.name, text,
                 fmt::format("must be {} {}, and finite", key.kind == "integer" ? "an" : "a", key.kind));
  }
  if (key.kind == "seconds" && !plain) return Json(text);
  Result<double> number = plain ? Result<double>(signed_number) : parse_count(text);
  if (!number) return wrong(key.name, text, fmt::format("must be {} {}", key.kind == "integer" ? "an" : "a", key.kind));
  const double x = *number;
  constexpr double kLargest = 9e18;  // below 2^63
  if (key.kind == "integer" && x < kLargest && x > -kLargest && x == std::floor(x)) {
    return Json(static_cast<std::int64_t>(x));
  }
  return Json(x);
}

Status apply_file(RunConfig& config, const Json& file) {
  for (const auto& [section, table] : file.as_object()) {
    if (section == "layout" && table.is_string()) {
      return wrong("layout", table.dump(), "the planner's search is not part of this build",
                   "a [layout] table with tp, pp, dp");
    }
    if (!table.is_object() || (table.as_object().empty() && !is_section(section))) return unknown_key(section);
    for (const auto& [name, value] : table.as_object()) {
      const std::string full = section + "." + name;
      const RunKey* key = find_key(full);
      if (key == nullptr) return unknown_key(full);
      if (Status status = key->set(config, value); !status) return status;
    }
  }
  return ok_status();
}

Status check_trace(RunConfig& config) {
  if (config.trace.empty()) {
    if (config.trace_first == 0) return ok_status();
    return wrong("out.trace_steps", trace_steps_text(config), "is used with out.trace only", "--trace FILE");
  }
  if (config.trace_first == 0) {  // past the first, which touches all memory for the first time
    constexpr std::int64_t kFirst = 3, kLast = 5;
    config.trace_first = std::min(kFirst, config.steps);
    config.trace_last = std::min(kLast, config.steps);
  }
  if (config.trace_last <= config.steps) return ok_status();
  return wrong("out.trace_steps", trace_steps_text(config), fmt::format("the run has {} steps", config.steps),
               fmt::format("{}-{}", std::min(config.trace_first, config.steps), config.steps));
}

// Without saves there is nothing that these could be of.
Status check_saves(const RunConfig& config) {
  const RunConfig defaults;
  if (config.save_interval.kind != SaveInterval::Kind::kAuto) {
    for (const auto& [key, given] : {std::pair("checkpoint.mtbf", config.mtbf.count > 0),
                                     std::pair("checkpoint.cluster", !config.cluster.empty())}) {
      if (given) return wrong(key, "", "is used by checkpoint.interval = auto only", "leave it out");
    }
  }
  if (config.save_interval.kind != SaveInterval::Kind::kNone) return ok_status();
  for (const auto& [key, given] : {std::pair("checkpoint.keep_last", !(config.retention == defaults.retention)),
                                   std::pair("checkpoint.async", !config.async_saves)}) {
    if (given) return wrong(key, "", "is of a run that saves, and checkpoint.interval is none", "leave it out");
  }
  return ok_status();
}

Status check_world(const plan::Layout& layout) {
  constexpr std::int64_t kMostRanks = std::int64_t{1} << 20;
  std::int64_t world = 1;
  for (const int degree : {layout.dp, layout.tp, layout.pp}) world = std::min(world * degree, kMostRanks + 1);
  if (world <= kMostRanks) return ok_status();
  return wrong("layout", fmt::format("dp {} x tp {} x pp {}", layout.dp, layout.tp, layout.pp),
               fmt::format("a run has at most {} ranks", kMostRanks), "smaller layout.dp, layout.tp, layout.pp");
}

// A hang is never found sooner than the floor says, nor later than the deadlines do. A floor that was not given is no
// higher than they are.
Status check_deadlines(RunConfig& config, bool floor_given) {
  const bool at_start = config.start_deadline_s < config.deadline_s;
  const Seconds most{at_start ? config.start_deadline_s : config.deadline_s};
  Seconds& floor = config.supervise.hang_floor;
  if (!floor_given) floor = std::min(floor, most);
  if (floor <= most) return ok_status();
  return wrong("supervise.hang_floor", duration_text(floor),
               fmt::format("must not be above {} ({})", at_start ? "train.start_deadline" : "train.deadline",
                           duration_text(most)),
               duration_text(most));
}

Status check_supervision(const SuperviseConfig& supervise) {
  for (const auto& [name, words] : {std::pair("mpirun", &supervise.mpirun), std::pair("srun", &supervise.srun)}) {
    if (words_of(*words).empty()) {
      return wrong(fmt::format("supervise.{}", name), fmt::format("\"{}\"", *words), "names no program", name);
    }
  }
  if (!supervise.hosts.empty() && (supervise.launcher == Launcher::kThreads || supervise.launcher == Launcher::kNone)) {
    return wrong("supervise.hosts", supervise.hosts,
                 fmt::format("supervise.launcher = {} has this host alone", launcher_name(supervise.launcher)),
                 "mpirun, srun, auto");
  }
  if (supervise.rehearsal && supervise.hosts.empty()) {
    return wrong("supervise.rehearsal", "true", "is of named hosts", "supervise.hosts = \"a:2,b:2\"");
  }
  return ok_status();
}

// Rules between keys; single keys were checked as they were set.
Status check_together(RunConfig& config, const Given& given) {
  if (config.model_config.empty()) return wrong("model.config", "", "is needed", "the path of a config.json");
  if (config.train_tokens.empty())
    return wrong("data.train", "", "is needed", "a file that trireme data tokenize wrote");
  config.fp32_gradients = config.fp32_gradients && is_narrow(config.precision);  // those of an fp32 run are fp32 anyway
  if (config.precision != DType::kF16 && !(config.loss_scale == optim::LossScalePolicy{})) {
    return wrong("optimizer.loss_scale", fmt::format("{}", config.loss_scale.initial), "is of fp16 runs",
                 "train.precision = \"fp16\"");
  }
  if (Status status = optim::check(config.loss_scale); !status) return status;
  if (!given.reduce) config.layout.reduce = plan::default_reduce(config.layout.zero);
  config.learning_rate.total_steps = config.steps;
  if (config.learning_rate.minimum > config.learning_rate.peak) {
    return wrong("optimizer.min_learning_rate", fmt::format("{}", config.learning_rate.minimum),
                 "must not be above optimizer.learning_rate", fmt::format("{}", config.learning_rate.peak));
  }
  const bool wsd = config.learning_rate.decay == optim::Decay::kWsd;
  const bool decays =
      config.learning_rate.decay != optim::Decay::kConstant && (!wsd || config.learning_rate.decay_steps > 0);
  if (!decays && config.learning_rate.minimum > 0.0 && config.learning_rate.minimum != config.learning_rate.peak) {
    return wrong("optimizer.min_learning_rate", fmt::format("{}", config.learning_rate.minimum),
                 "is never reached: this schedule does not decay", "0");
  }
  if (config.layout.zero != 3 && config.layout.prefetch != plan::Layout{}.prefetch) {
    return wrong("layout.prefetch", fmt::format("{}", config.layout.prefetch), "is of ZeRO stage 3 only",
                 fmt::format("{}", plan::Layout{}.prefetch));
  }
  if (!wsd && config.learning_rate.decay_steps > 0) {
    return wrong("optimizer.decay_steps", fmt::format("{}", config.learning_rate.decay_steps),
                 "is used by optimizer.decay = wsd only", "0");
  }
  if (config.learning_rate.warmup_steps + config.learning_rate.decay_steps > config.steps) {
    return wrong("optimizer.warmup_steps", fmt::format("{}", config.learning_rate.warmup_steps),
                 fmt::format("warm-up and decay must fit in train.steps ({})", config.steps),
                 fmt::format("{}", std::max<std::int64_t>(0, config.steps - config.learning_rate.decay_steps)));
  }
  if (Status status = check_saves(config); !status) return status;
  if (Status status = check_world(config.layout); !status) return status;
  if (Status status = check_supervision(config.supervise); !status) return status;
  if (Status status = check_deadlines(config, given.hang_floor); !status) return status;
  return check_trace(config);
}

}  // namespace

Result<RunConfig> make_run_config(const Json& file, const std::vector<std::pair<std::string, std::string>>& overrides) {
  RunConfig config;
  if (Status status = apply_file(config, file); !status) return status.failure();
  Given given{.reduce = has(file, "layout", "reduce"), .hang_floor = has(file, "supervise", "hang_floor")};
  for (const auto& [name, text] : overrides) {
    const RunKey* key = find_key(name);
    if (key == nullptr) return unknown_key(name);
    Result<Json> value = override_value(*key, text);
    if (!value) return value.failure();
    if (Status status = key->set(config, *value); !status) return status.failure();
    given.reduce = given.reduce || name == "layout.reduce";
    given.hang_floor = given.hang_floor || name == "supervise.hang_floor";
  }
  if (Status status = check_together(config, given); !status) return status.failure();
  return config;
}

Result<RunConfig> load_run_config(Env& env, const std::string& path,
                                  const std::vector<std::pair<std::string, std::string>>& overrides) {
  if (!env.exists(path)) {
    return Failure{
        .option = "run file", .value = path, .rule = "there is no such file", .nearest = "examples/runs/demo.toml"};
  }
  Result<Json> file = parse_toml(env.read_file(path), path);
  if (!file) return file.failure();
  return make_run_config(*file, overrides);
}

Json to_json(const RunConfig& config) {
  Json document = Json::object();
  for (const RunKey& key : run_keys()) {
    const std::size_t dot = key.name.find('.');
    document[key.name.substr(0, dot)][key.name.substr(dot + 1)] = key.get(config);
  }
  return document;
}

std::string to_toml(const RunConfig& config) { return trireme::to_toml(to_json(config)); }

}  // namespace trireme::train
