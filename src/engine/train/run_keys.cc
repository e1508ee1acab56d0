#include "engine/train/run_keys.h"

#include <charconv>

#include <fmt/ranges.h>

#include "engine/train/run_key_kinds.h"
#include "engine/train/same_run.h"

namespace trireme::train {
namespace {

Status set_token_bytes(RunConfig& config, const Json& value) {
  const std::int64_t bytes = value.is_integer() ? value.as_integer() : -1;
  if (bytes != 0 && bytes != 2 && bytes != 4) {
    return wrong("data.token_bytes", value.dump(), "tokens are 16 or 32 bits", "2, 4");
  }
  config.token_bytes = bytes;
  return ok_status();
}

std::vector<RunKey> model_and_data_keys() {
  return {
      text_key("model.config", "config.json of the model, or a directory that holds one",
               [](RunConfig& c) -> std::string& { return c.model_config; }),
      text_key("model.weights", "safetensors file or directory to start from; empty: initialise from the seed",
               [](RunConfig& c) -> std::string& { return c.model_weights; }),
      text_key("data.train", "token file to train on (trireme data tokenize)",
               [](RunConfig& c) -> std::string& { return c.train_tokens; }),
      text_key("data.validation", "token file for the validation loss; empty: none",
               [](RunConfig& c) -> std::string& { return c.validation_tokens; }),
      integer_key<std::int64_t>(
          "data.ignore", "token whose prediction bears no loss, such as padding; -1: none",
          [](RunConfig& c) -> std::int64_t& { return c.ignore; }, -1),
      {.name = "data.token_bytes",
       .kind = "integer",
       .help = "of a token in data's files: 2 or 4; 0: what a file beside them says, else as the vocabulary needs",
       .set = set_token_bytes,
       .get = [](const RunConfig& config) { return Json(config.token_bytes); }},
  };
}

std::vector<RunKey> train_keys() {
  return {
      integer_key<std::int64_t>(
          "train.steps", "optimizer steps", [](RunConfig& c) -> std::int64_t& { return c.steps; }, 1),
      integer_key<std::uint64_t>(
          "train.seed", "of initialisation, dropout and sample order",
          [](RunConfig& c) -> std::uint64_t& { return c.seed; }, 0),
      word_key<DType>(
          "train.precision",
          "of weights, gradients and activations: fp32; bf16 or fp16, with fp32 master weights and moments",
          [](RunConfig& c) -> DType& { return c.precision; }, plan::parse_precision, plan::precision_name),
      flag_key("train.fp32_gradients", "gradients in fp32 whatever the precision: 18 bytes a parameter, not 16",
               [](RunConfig& c) -> bool& { return c.fp32_gradients; }),
      integer_key<std::int64_t>(
          "train.threads", "compute threads of a rank; 0: the cores, shared by the ranks",
          [](RunConfig& c) -> std::int64_t& { return c.threads; }, 0, 1024),
      integer_key<std::int64_t>(
          "train.global_batch", "sequences a step, over all ranks",
          [](RunConfig& c) -> std::int64_t& { return c.batch.global_batch; }, 1),
      integer_key<std::int64_t>(
          "train.micro_batch", "sequences at once on a rank",
          [](RunConfig& c) -> std::int64_t& { return c.batch.micro_batch; }, 1),
      integer_key<std::int64_t>(
          "train.sequence", "tokens of a sequence", [](RunConfig& c) -> std::int64_t& { return c.batch.sequence; }, 1),
      integer_key<std::int64_t>(
          "train.validation_interval", "steps between validation losses; 0: at the end only",
          [](RunConfig& c) -> std::int64_t& { return c.validation_interval; }, 0),
      integer_key<std::int64_t>(
          "train.validation_micro_batches", "micro-batches of a validation loss",
          [](RunConfig& c) -> std::int64_t& { return c.validation_micro_batches; }, 1),
      integer_key<std::int64_t>(
          "train.log_interval", "steps between lines where output is no terminal; 0: some each minute",
          [](RunConfig& c) -> std::int64_t& { return c.log_interval; }, 0),
      bytes_key("train.memory_limit", "what a rank may hold at once; empty: no limit",
                [](RunConfig& c) -> Bytes& { return c.memory_limit; }),
      seconds_key(
          "train.deadline", "seconds that a rank waits for another before the run ends with code 86",
          [](RunConfig& c) -> double& { return c.deadline_s; }, Seconds{0.001}, Seconds{1e6}),
      seconds_key(
          "train.start_deadline", "the same for the start and the first step",
          [](RunConfig& c) -> double& { return c.start_deadline_s; }, Seconds{0.001}, Seconds{1e6}),
  };
}

std::vector<RunKey> optimizer_keys() {
  return {
      number_key(
          "optimizer.learning_rate", "peak learning rate", [](RunConfig& c) -> double& { return c.learning_rate.peak; },
          0.0, kUnbounded),
      number_key(
          "optimizer.min_learning_rate", "learning rate of the last step",
          [](RunConfig& c) -> double& { return c.learning_rate.minimum; }, 0.0, kUnbounded),
      integer_key<std::int64_t>(
          "optimizer.warmup_steps", "steps of linear warm-up",
          [](RunConfig& c) -> std::int64_t& { return c.learning_rate.warmup_steps; }, 0),
      integer_key<std::int64_t>(
          "optimizer.decay_steps", "steps of the final decay (wsd only)",
          [](RunConfig& c) -> std::int64_t& { return c.learning_rate.decay_steps; }, 0),
      word_key<optim::Decay>(
          "optimizer.decay", "constant, cosine, linear or wsd",
          [](RunConfig& c) -> optim::Decay& { return c.learning_rate.decay; }, optim::parse_decay, optim::decay_name),
      number_key(
          "optimizer.beta1", "AdamW's first moment", [](RunConfig& c) -> double& { return c.optimizer.beta1; }, 0.0,
          1.0),
      number_key(
          "optimizer.beta2", "AdamW's second moment", [](RunConfig& c) -> double& { return c.optimizer.beta2; }, 0.0,
          1.0),
      number_key(
          "optimizer.epsilon", "added to the root of the second moment",
          [](RunConfig& c) -> double& { return c.optimizer.epsilon; }, 0.0, kUnbounded),
      number_key(
          "optimizer.weight_decay", "decoupled decay, of matrices only",
          [](RunConfig& c) -> double& { return c.optimizer.weight_decay; }, 0.0, kUnbounded),
      number_key(
          "optimizer.loss_scale", "first loss scale of an fp16 run, a power of two",
          [](RunConfig& c) -> double& { return c.loss_scale.initial; }, 1.0, kUnbounded),
      integer_key<std::int64_t>(
          "optimizer.loss_scale_growth", "steps without an overflow before the loss scale is doubled",
          [](RunConfig& c) -> std::int64_t& { return c.loss_scale.growth_steps; }, 1),
      number_key(
          "optimizer.clip_norm", "largest global gradient norm; 0: no clipping",
          [](RunConfig& c) -> double& { return c.optimizer.clip_norm; }, 0.0, kUnbounded),
  };
}

std::vector<RunKey> layout_keys() {
  const auto degree = [](std::string name, std::string help, Field<int> field) {
    return integer_key<int>(std::move(name), std::move(help), std::move(field), 1);
  };
  return {
      degree("layout.tp", "tensor-parallel degree", [](RunConfig& c) -> int& { return c.layout.tp; }),
      degree("layout.pp", "pipeline stages", [](RunConfig& c) -> int& { return c.layout.pp; }),
      degree("layout.dp", "data-parallel replicas", [](RunConfig& c) -> int& { return c.layout.dp; }),
      degree("layout.interleave", "model chunks a stage", [](RunConfig& c) -> int& { return c.layout.interleave; }),
      word_key<plan::ScheduleKind>(
          "layout.schedule", "gpipe, 1f1b, interleaved or zb-h1",
          [](RunConfig& c) -> plan::ScheduleKind& { return c.layout.schedule; }, plan::parse_schedule,
          plan::schedule_name),
      integer_key<int>(
          "layout.zero", "ZeRO stage, 0 to 3", [](RunConfig& c) -> int& { return c.layout.zero; }, 0),
      word_key<plan::ReduceWhen>(
          "layout.reduce", "when ranks are summed: step or microbatch",
          [](RunConfig& c) -> plan::ReduceWhen& { return c.layout.reduce; }, plan::parse_reduce, plan::reduce_name),
      word_key<ReduceAlgorithm>(
          "layout.all_reduce", "how replicas are summed: ordered, ring, recursive-doubling, hierarchical or library",
          [](RunConfig& c) -> ReduceAlgorithm& { return c.layout.all_reduce; }, parse_reduce_algorithm,
          reduce_algorithm_name),
      word_key<model::Recompute>(
          "layout.recompute", "none, selective or full",
          [](RunConfig& c) -> model::Recompute& { return c.layout.recompute; }, model::parse_recompute,
          model::recompute_name),
      word_key<plan::AxisOrder>(
          "layout.order", "tp-pp-dp or tp-dp-pp, fastest first",
          [](RunConfig& c) -> plan::AxisOrder& { return c.layout.order; }, plan::parse_axis_order,
          plan::axis_order_name),
      flag_key("layout.sequence_parallel", "cut norms and residuals over the tensor ranks",
               [](RunConfig& c) -> bool& { return c.layout.sequence_parallel; }),
      integer_key<std::int64_t>(
          "layout.bucket", "gradients that replicas reduce together, at least; 0: each layer's by themselves",
          [](RunConfig& c) -> std::int64_t& { return c.layout.bucket; }, 0),
      flag_key("layout.overlap", "reduce gradients while backward goes on",
               [](RunConfig& c) -> bool& { return c.layout.overlap; }),
      flag_key("layout.allow_slow_tp", "tensor-parallel ranks may be on different hosts",
               [](RunConfig& c) -> bool& { return c.allow_slow_tp; }),
      degree("layout.prefetch", "units gathered ahead (ZeRO 3)",
             [](RunConfig& c) -> int& { return c.layout.prefetch; }),
  };
}

// "3-5" or "3".
Status set_trace_steps(RunConfig& config, const Json& value) {
  constexpr const char* kName = "out.trace_steps";
  const auto refused = [&](std::string rule, std::string nearest) {
    return wrong(kName, value.is_string() ? value.as_string() : value.dump(), std::move(rule), std::move(nearest));
  };
  if (!value.is_string()) return refused("must be text", "\"3-5\"");
  const std::string& text = value.as_string();
  if (text.empty()) {
    config.trace_first = config.trace_last = 0;
    return ok_status();
  }
  const char* const end = text.data() + text.size();
  std::int64_t first = 0, last = 0;
  auto parsed = std::from_chars(text.data(), end, first);
  last = first;
  if (parsed.ec == std::errc() && parsed.ptr != end && *parsed.ptr == '-') {
    parsed = std::from_chars(parsed.ptr + 1, end, last);
  }
  if (parsed.ec != std::errc() || parsed.ptr != end) return refused("must be a step or two, first and last", "3-5");
  if (first < 1) return refused("steps count from 1", "1");
  if (last < first) return refused("the last step must not be before the first", fmt::format("{}-{}", last, first));
  if (last - first >= kMostTracedSteps) {
    return refused(fmt::format("may be {} steps at most", kMostTracedSteps),
                   fmt::format("{}-{}", first, first + kMostTracedSteps - 1));
  }
  config.trace_first = first;
  config.trace_last = last;
  return ok_status();
}

// Text, or a bare number of steps.
Status set_save_interval(RunConfig& config, const Json& value) {
  if (!value.is_string() && !value.is_integer()) {
    return wrong("checkpoint.interval", value.dump(), "must be auto, none, steps or a time",
                 "\"auto\", 200, \"30min\"");
  }
  const Result<SaveInterval> interval = parse_save_interval(value.is_string() ? value.as_string() : value.dump());
  if (!interval) return interval.failure();
  config.save_interval = *interval;
  return ok_status();
}

Status set_accept(RunConfig& config, const Json& value) {
  if (!value.is_string()) return wrong("checkpoint.accept", value.dump(), "must be text", "\"train.steps\"");
  std::vector<std::string> keys;
  const std::string& text = value.as_string();
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    keys.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  if (Status status = check_accepted_keys(keys); !status) return status;
  config.accept = std::move(keys);
  return ok_status();
}

std::vector<RunKey> checkpoint_keys() {
  return {
      {.name = "checkpoint.interval",
       .kind = "text",
       .help = "between saves: auto (what wastes least), steps (200), time (30min), or none: no checkpoints",
       .set = set_save_interval,
       .get = [](const RunConfig& config) { return Json(to_text(config.save_interval)); }},
      flag_key("checkpoint.async", "train on while a save is written; needs memory for a copy of the state",
               [](RunConfig& c) -> bool& { return c.async_saves; }),
      integer_key<std::int64_t>(
          "checkpoint.keep_last", "checkpoints that stay",
          [](RunConfig& c) -> std::int64_t& { return c.retention.keep_last; }, 1),
      integer_key<std::int64_t>(
          "checkpoint.keep_every", "those of steps that are a multiple of it stay too; 0: none",
          [](RunConfig& c) -> std::int64_t& { return c.retention.keep_every; }, 0),
      time_key("checkpoint.mtbf", "mean time between failures of the whole run, for auto; empty: the cluster's, or 24h",
               [](RunConfig& c) -> Seconds& { return c.mtbf; },
               {.least = {1e-3}, .most = {1e12}, .may_be_empty = true}),
      text_key("checkpoint.cluster", "cluster file or preset whose failure rate auto starts from",
               [](RunConfig& c) -> std::string& { return c.cluster; }),
      text_key("checkpoint.resume", "checkpoint, or run, to start from; empty: the run directory's own newest, if any",
               [](RunConfig& c) -> std::string& { return c.resume; }),
      {.name = "checkpoint.accept",
       .kind = "text",
       .help = "keys that may differ from the checkpoint's run, with commas: train.steps,optimizer.learning_rate",
       .set = set_accept,
       .get = [](const RunConfig& config) { return Json(fmt::format("{}", fmt::join(config.accept, ","))); }},
  };
}

std::vector<RunKey> out_keys() {
  return {
      text_key("out.directory", "run directory", [](RunConfig& c) -> std::string& { return c.out; }),
      flag_key("out.overwrite", "write into a run directory that exists",
               [](RunConfig& c) -> bool& { return c.overwrite; }),
      text_key("out.trace", "file for a timeline of all ranks, which Perfetto shows; empty: none",
               [](RunConfig& c) -> std::string& { return c.trace; }),
      {.name = "out.trace_steps",
       .kind = "text",
       .help = "steps that out.trace shows, first and last: 3-5",
       .set = set_trace_steps,
       .get = [](const RunConfig& config) { return Json(trace_steps_text(config)); }},
  };
}

}  // namespace

const std::vector<RunKey>& run_keys() {
  static const std::vector<RunKey> keys = [] {
    std::vector<RunKey> all;
    for (auto* section :
         {model_and_data_keys, train_keys, optimizer_keys, layout_keys, checkpoint_keys, supervise_keys, out_keys}) {
      for (RunKey& key : section()) all.push_back(std::move(key));
    }
    return all;
  }();
  return keys;
}

}  // namespace trireme::train
