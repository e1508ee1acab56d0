#include "planner/published.h"

#include <algorithm>
#include <charconv>
#include <map>

#include <fmt/format.h>

#include "base/check.h"
#include "model/flops.h"
#include "planner/csv.h"

namespace trireme::planner {
namespace {

constexpr double kGibibyte = 1024.0 * 1024.0 * 1024.0;
constexpr std::int64_t kDefaultVocabulary = 51200;  // GPT-2's, padded, as Megatron's papers have it

constexpr const char* kNeeded[] = {"id",       "source",    "model",     "layers",      "hidden",       "heads",
                                   "kv_heads", "ffn",       "mlp_gated", "seq_len",     "gpu",          "n_gpus",
                                   "tp",       "pp",        "dp",        "micro_batch", "global_batch", "precision",
                                   "zero",     "recompute", "metric",    "value"};

bool holds(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

// Columns of numbers; those of `value` only where the metric beside them is known.
constexpr const char* kNumbers[] = {"layers",
                                    "hidden",
                                    "heads",
                                    "kv_heads",
                                    "ffn",
                                    "vocab",
                                    "seq_len",
                                    "n_gpus",
                                    "gpus_per_node",
                                    "internode_gbps_per_gpu",
                                    "tp",
                                    "pp",
                                    "vpp",
                                    "dp",
                                    "cp",
                                    "ep",
                                    "micro_batch",
                                    "global_batch"};
constexpr double kLargestNumber = 1e15;

// Why a row is set aside: the rule is its reason, the value what the row has.
Failure skip(std::string reason, std::string detail = "") {
  return {.option = "", .value = std::move(detail), .rule = std::move(reason), .nearest = ""};
}

// Not a number, or negative: nullopt.
std::optional<double> parse_number(const std::string& field) {
  double value = 0;
  const char* end = field.data() + field.size();
  const auto [stop, error] = std::from_chars(field.data(), end, value);
  if (error != std::errc() || stop != end || !(value >= 0 && value < kLargestNumber)) return std::nullopt;
  return value;
}

class Row {
 public:
  Row(const std::map<std::string, std::size_t>& columns, const CsvRecord& record)
      : columns_(columns), record_(record) {}

  int line() const { return record_.line; }
  // "" where the column is absent.
  const std::string& text(const std::string& column) const {
    static const std::string empty;
    const auto found = columns_.find(column);
    return found == columns_.end() ? empty : record_.fields[found->second];
  }
  // nullopt: not stated.
  std::optional<double> number(const std::string& column) const { return parse_number(text(column)); }
  std::optional<std::int64_t> count(const std::string& column) const {
    const std::optional<double> value = number(column);
    if (!value) return std::nullopt;
    return static_cast<std::int64_t>(*value);
  }
  // 0 where it is not stated: needed_columns() has seen to it that it is.
  std::int64_t needed(const std::string& column) const { return count(column).value_or(0); }
  int degree(const std::string& column) const {
    return static_cast<int>(std::min<std::int64_t>(needed(column), kMost));
  }
  bool flag(const std::string& column) const { return text(column) == "1"; }

 private:
  static constexpr std::int64_t kMost = 1 << 30;
  const std::map<std::string, std::size_t>& columns_;
  const CsvRecord& record_;
};

Status needed_columns(const Row& row) {
  for (const char* column : {"layers", "hidden", "heads", "kv_heads", "ffn", "seq_len", "n_gpus", "tp", "pp", "dp",
                             "micro_batch", "global_batch"}) {
    if (row.needed(column) < 1) return skip(fmt::format("{} is not stated", column));
  }
  return ok_status();
}

Result<model::Config> config_of(const Row& row) {
  if (holds(row.text("model"), "MoE") || holds(row.text("notes"), "MoE") || row.count("ep").value_or(1) > 1) {
    return skip("mixture of experts", row.text("model"));
  }
  // Another block than the planner's: fewer exchanges, less attention.
  if (holds(row.text("notes"), "parallel transformer block") || holds(row.text("notes"), "sliding-window")) {
    return skip("another transformer block", row.text("model"));
  }
  model::Config config;
  config.layers = row.needed("layers");
  config.hidden = row.needed("hidden");
  config.heads = row.needed("heads");
  config.kv_heads = row.needed("kv_heads");
  config.ffn = row.needed("ffn");
  config.max_positions = row.needed("seq_len");
  config.vocabulary = row.count("vocab").value_or(kDefaultVocabulary);
  config.gated_mlp = row.flag("mlp_gated");
  config.tied_embeddings = row.flag("tied_emb");
  if (config.hidden % config.heads != 0 || config.heads % config.kv_heads != 0) {
    return skip("heads do not divide the width", fmt::format("{} of {}", config.heads, config.hidden));
  }
  config.head_dim = config.hidden / config.heads;
  if (!config.gated_mlp) {
    config.family = model::Family::kGpt2;
    config.norm = model::NormKind::kLayerNorm;
    config.activation = model::Activation::kGeluTanh;
    config.attention_input_bias = config.attention_output_bias = config.mlp_bias = true;
    config.position = model::PositionKind::kLearned;
  }
  return config;
}

cluster::Cluster preset(std::string_view name) {
  const Json document = parse_toml(cluster::preset_text(name), std::string(name)).or_throw();
  return cluster::parse_cluster(document, std::string(name)).or_throw();
}

Result<cluster::Cluster> cluster_of(const Row& row) {
  const std::string& gpu = row.text("gpu");
  cluster::Cluster result;
  if (gpu.starts_with("A100") && holds(gpu, "40GB")) {
    result = preset("a100-40");
  } else if (gpu.starts_with("A100") || gpu.starts_with("A800")) {
    result = preset("a100-80");
  } else if (gpu.starts_with("H100") || gpu.starts_with("H800")) {
    result = preset("h100");
  } else if (gpu.starts_with("H200")) {
    result = preset("h200");
  } else if (gpu.starts_with("B200")) {
    result = preset("b200");
  } else if (gpu.starts_with("GB200")) {
    result = preset("gb200-nvl72");
  } else {
    return skip(gpu.empty() ? "gpu is not stated" : "no preset for the device", gpu);
  }
  // The export variants differ in their links alone: 400 GB/s in both directions.
  if (gpu.starts_with("A800") || gpu.starts_with("H800")) result.inside.bytes_per_s = 200e9;
  if (holds(gpu, "HBM2e") && gpu.starts_with("H100")) {
    // A part with older memory (96 GB, 2.4 TB/s) and 500 W instead of 700 W, which holds its clock back: about 0.8 of
    // the peak.
    result.device.memory = {96'000'000'000};
    result.device.memory_bytes_per_s = 2.4e12;
    result.device.bf16_flops_per_s *= 0.8;
  }
  const int devices = row.degree("n_gpus");
  const auto host = static_cast<int>(row.count("gpus_per_node").value_or(result.devices_per_host));
  result.devices_per_host = std::max(1, std::min(host, devices));
  result.hosts = static_cast<int>(divide_up(devices, result.devices_per_host));
  result.cards_per_host = result.devices_per_host;
  if (const std::optional<double> gigabits = row.number("internode_gbps_per_gpu"); gigabits && *gigabits > 0) {
    result.between.bytes_per_s = *gigabits * 1e9 / 8;
  }
  return result;
}

// "0", "1 (all DP ranks)", "dist-opt (1)", "3 (FSDP full shard)", "FSDP: ... (2-like)"; not stated: 0.
Result<int> zero_of(const std::string& text) {
  if (text.empty()) return 0;
  if (holds(text, "dist-opt") || text.starts_with("0/1")) return 1;
  if (holds(text, "2-like")) return 2;
  if (text[0] >= '0' && text[0] <= '3') return text[0] - '0';
  if (holds(text, "FSDP")) return 3;
  return skip("the sharding is not known", text);
}

// Where it is not stated: before fused attention Megatron recomputes the scores, after it nothing.
Result<model::Recompute> recompute_of(const std::string& text, const std::string& framework) {
  if (text.empty()) return framework == "megatron-2021" ? model::Recompute::kSelective : model::Recompute::kNone;
  if (text == "none") return model::Recompute::kNone;
  if (text == "full") return model::Recompute::kFull;
  // torchtitan's "op SAC" makes every second product again and keeps less than this: the nearest that there is.
  if (text == "selective" || text == "selective (core_attn)" || text == "selective (op SAC)") {
    return model::Recompute::kSelective;
  }
  return skip("recomputes a part that the planner does not know", text);
}

// The schedule stands in the notes: "schedule ZB-1p, ...".
Result<plan::ScheduleKind> schedule_of(const std::string& notes, int interleave) {
  if (notes.starts_with("schedule ZB-1p") || notes.starts_with("schedule ZB-H1")) {
    return plan::ScheduleKind::kZeroBubbleH1;
  }
  if (notes.starts_with("schedule ZB") || notes.starts_with("schedule V")) {
    return skip("the schedule is not known", notes.substr(0, notes.find(',')));
  }
  return interleave > 1 ? plan::ScheduleKind::kInterleaved : plan::ScheduleKind::kOneFOneB;
}

Result<Choice> choice_of_row(const Row& row, const std::string& framework) {
  if (row.count("cp").value_or(1) > 1) return skip("context parallelism", "cp " + row.text("cp"));
  plan::Layout layout;
  layout.tp = row.degree("tp");
  layout.pp = row.degree("pp");
  layout.dp = row.degree("dp");
  const Result<int> zero = zero_of(row.text("zero"));
  if (!zero) return zero.failure();
  layout.zero = *zero;
  layout.reduce = plan::default_reduce(layout.zero);
  const Result<model::Recompute> recompute = recompute_of(row.text("recompute"), framework);
  if (!recompute) return recompute.failure();
  layout.recompute = *recompute;
  layout.sequence_parallel = row.flag("seq_par") && layout.tp > 1;
  const std::optional<std::int64_t> interleave = row.count("vpp");
  // DeepSpeed's pipeline does not interleave.
  if (!interleave && layout.pp > 1 && !holds(row.text("zero"), "DeepSpeed")) return skip("vpp is not stated");
  layout.interleave = static_cast<int>(std::clamp<std::int64_t>(interleave.value_or(1), 1, 1 << 16));
  const Result<plan::ScheduleKind> schedule = schedule_of(row.text("notes"), layout.interleave);
  if (!schedule) return schedule.failure();
  layout.schedule = *schedule;
  return choice_of(layout, row.needed("micro_batch"));
}

Status check_run(const PublishedRun& run) {
  const Choice& choice = run.choice;
  if (choice.world() != run.devices) {
    return skip("tp * pp * dp is not the number of devices", fmt::format("{} of {}", choice.world(), run.devices));
  }
  if (run.global_batch % (choice.micro_batch * choice.dp) != 0) {
    return skip("the batch is no multiple of micro-batch * dp",
                fmt::format("{} by {} * {}", run.global_batch, choice.micro_batch, choice.dp));
  }
  const plan::Batch batch{
      .global_batch = run.global_batch, .micro_batch = choice.micro_batch, .sequence = run.config.max_positions};
  if (const Status legal = plan::check_layout(run.config, choice.layout(), batch); !legal) {
    return skip("the planner refuses the layout", legal.failure().sentence());
  }
  return ok_status();
}

// Seconds of a step from TFLOP/s a device, if the source's convention is known.
std::optional<double> seconds_of_flops(const PublishedRun& run, double tflops, const std::string& convention) {
  double flops = 0;
  if (convention.starts_with("96*B*s*L*h^2") || convention.starts_with("SC21 formula")) {
    flops =
        model::hardware_flops(run.config, run.global_batch, run.config.max_positions, model::Recompute::kFull).count;
  } else if (convention.starts_with("72*B") || convention.starts_with("model FLOPs")) {
    flops = run.model_flops();
  } else {
    return std::nullopt;
  }
  return flops / (tflops * 1e12 * static_cast<double>(run.devices));
}

struct Metric {
  std::string name;
  double value = 0;
};
constexpr const char* kTimeMetrics[] = {"step_seconds",          "step_seconds_derived", "tokens_per_s_per_gpu",
                                        "samples_per_s_per_gpu", "tflops_per_gpu",       "mfu_pct"};  // best first
constexpr const char* kMemoryMetrics[] = {"mem_gpu_GB", "mem_peak_GB", "mem_peak_GiB"};

constexpr const char* kMetricColumns[] = {"", "2", "3"};

bool known_metric(const std::string& name) {
  const auto among = [&](const auto& names) {
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
  };
  return among(kTimeMetrics) || among(kMemoryMetrics);
}

// Those that it knows; the values of others need not be numbers.
std::vector<Metric> metrics_of(const Row& row) {
  std::vector<Metric> metrics;
  for (const char* suffix : kMetricColumns) {
    const std::string& name = row.text(std::string("metric") + suffix);
    if (!known_metric(name)) continue;
    if (const auto value = row.number(std::string("value") + suffix)) metrics.push_back({name, *value});
  }
  return metrics;
}

// The best of what is there.
std::optional<double> step_seconds_of(const Row& row, const PublishedRun& run) {
  const std::vector<Metric> metrics = metrics_of(row);
  const auto devices = static_cast<double>(run.devices);
  const auto sequences = static_cast<double>(run.global_batch);
  const auto tokens = sequences * static_cast<double>(run.config.max_positions);
  for (const char* name : kTimeMetrics) {
    for (const Metric& metric : metrics) {
      if (metric.name != name || metric.value <= 0) continue;
      const std::string_view kind = name;
      if (kind.starts_with("step_seconds")) return metric.value;
      if (kind == "tokens_per_s_per_gpu") return tokens / (metric.value * devices);
      if (kind == "samples_per_s_per_gpu") return sequences / (metric.value * devices);
      if (kind == "mfu_pct") return run.model_flops() / (metric.value / 100 * run.peak_flops_per_s());
      const auto seconds = seconds_of_flops(run, metric.value, row.text("flops_convention"));
      if (seconds) return seconds;
    }
  }
  return std::nullopt;
}

// Memory is not compared where the sharding is not stated.
void read_memory(const Row& row, PublishedRun& run) {
  if (row.text("zero").empty()) return;
  for (const Metric& metric : metrics_of(row)) {
    if (metric.value <= 0) continue;
    if (metric.name == "mem_gpu_GB" || metric.name == "mem_peak_GB") run.memory_bytes = metric.value * 1e9;
    if (metric.name == "mem_peak_GiB") run.memory_bytes = metric.value * kGibibyte;
    if (metric.name == "mem_gpu_GB") run.memory_of_device = true;
  }
}

Result<PublishedRun> run_of(const Row& row) {
  PublishedRun run;
  run.id = row.text("id");
  run.source = row.text("source");
  run.line = row.line();
  const std::string& precision = row.text("precision");
  if (!precision.starts_with("bf16") && !precision.starts_with("fp16")) {
    return skip("the precision is not of 16 bits", precision);
  }
  run.framework = row.text("framework").empty() ? framework_of_source(run.source) : row.text("framework");
  if (run.framework.empty()) return skip("the framework of the source is not known", run.source);
  // Megatron keeps fp32 gradients with bf16, not with fp16.
  run.fp32_gradients = run.framework == "megatron-2021" && precision.starts_with("bf16");
  if (const Status stated = needed_columns(row); !stated) return stated.failure();
  const Result<model::Config> config = config_of(row);
  if (!config) return config.failure();
  const Result<cluster::Cluster> cluster = cluster_of(row);
  if (!cluster) return cluster.failure();
  const Result<Choice> choice = choice_of_row(row, run.framework);
  if (!choice) return choice.failure();
  run.config = *config;
  run.cluster = *cluster;
  run.choice = *choice;
  run.devices = row.needed("n_gpus");
  run.global_batch = row.needed("global_batch");
  if (const Status legal = check_run(run); !legal) return legal.failure();
  run.step_s = step_seconds_of(row, run);
  read_memory(row, run);
  if (!run.step_s && !run.memory_bytes) {
    return skip("neither a step's time nor a device's memory was measured", row.text("metric"));
  }
  return run;
}

Result<std::map<std::string, std::size_t>> columns_of(const CsvTable& table, const std::string& what) {
  std::map<std::string, std::size_t> columns;
  for (std::size_t at = 0; at < table.header.size(); ++at) columns.emplace(table.header[at], at);
  for (const char* name : kNeeded) {
    if (columns.contains(name)) continue;
    return Failure{.option = what + ":1",
                   .value = "",
                   .rule = fmt::format("there is no column {}", name),
                   .nearest = "the header names the columns of a file of runs"};
  }
  return columns;
}

// Every field that is to be a number is one, or empty.
Status check_numbers(const Row& row, const std::string& what) {
  const auto check = [&](const std::string& column) -> Status {
    const std::string& field = row.text(column);
    if (field.empty() || parse_number(field)) return ok_status();
    return Failure{.option = fmt::format("{}:{}: {}", what, row.line(), column),
                   .value = field,
                   .rule = "must be a number, not negative",
                   .nearest = ""};
  };
  for (const char* column : kNumbers) {
    if (Status status = check(column); !status) return status;
  }
  for (const char* suffix : kMetricColumns) {
    if (!known_metric(row.text(std::string("metric") + suffix))) continue;
    if (Status status = check(std::string("value") + suffix); !status) return status;
  }
  return ok_status();
}

}  // namespace

double PublishedRun::model_flops() const {
  return model::model_flops(config, global_batch, config.max_positions).count;
}

std::string framework_of_source(std::string_view source) {
  static const std::pair<std::string_view, std::string_view> kSources[] = {
      {"ultrascale", "nanotron"},
      // Before fused attention.
      {"SC21", "megatron-2021"},
      {"Korthikanti", "megatron-2021"},
      {"MT-NLG", "megatron-2021"},
      {"BLOOM", "megatron-2021"},
      {"vTrain", "megatron-2021"},
      {"MegaScale", "megatron-2021"},
      {"Zero Bubble", "megatron-2021"},
      {"llm-foundry", "fsdp"},
      {"torchtitan", "fsdp"},
      {"FSDP", "fsdp"},
      {"IBM", "fsdp"},
      {"LLaMA", "fsdp"},
      {"Llama 3", "fsdp"},
      {"OPT", "fsdp"},
      {"Megatron", "megatron"},
      {"NeMo", "megatron"},
      {"Nemotron", "megatron"},
      {"InternEvo", "megatron"},
      {"SimuMax", "megatron"},
  };
  for (const auto& [part, framework] : kSources) {
    if (holds(source, part)) return std::string(framework);
  }
  return "";
}

Result<PublishedRuns> parse_published(std::string_view text, const std::string& what) {
  const Result<CsvTable> table = parse_csv(text, what);
  if (!table) return table.failure();
  const auto columns = columns_of(*table, what);
  if (!columns) return columns.failure();
  PublishedRuns result;
  for (const CsvRecord& record : table->records) {
    const Row row(*columns, record);
    if (const Status numbers = check_numbers(row, what); !numbers) return numbers.failure();
    Result<PublishedRun> run = run_of(row);
    if (run) {
      result.runs.push_back(std::move(run).value());
      continue;
    }
    result.skipped.push_back({.id = row.text("id"),
                              .source = row.text("source"),
                              .line = row.line(),
                              .reason = run.failure().rule,
                              .detail = run.failure().value});
  }
  return result;
}

}  // namespace trireme::planner
