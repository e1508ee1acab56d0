#include <algorithm>

#include <fmt/format.h>

#include "base/read_once.h"
#include "engine/train/resume.h"
#include "engine/train/run_checks.h"
#include "engine/train/run_directory.h"
#include "engine/train/trainer.h"
#include "model/flops.h"

namespace trireme::train {
namespace {

// What the backend lacks is refused by name before anything is allocated.
Status check_backend(const RunConfig& config, plan::Backend backend) {
  const plan::Layout& layout = config.layout;
  if (layout.all_reduce != ReduceAlgorithm::kLibrary) return ok_status();
  if (is_narrow(config.precision)) {
    return Failure{.option = "layout.all_reduce",
                   .value = std::string(reduce_algorithm_name(layout.all_reduce)),
                   .rule = fmt::format("the communication library sums no {}", plan::precision_name(config.precision)),
                   .nearest = "ordered, ring, recursive-doubling, hierarchical"};
  }
  if (backend != plan::Backend::kThreads) return ok_status();
  return Failure{.option = "layout.all_reduce",
                 .value = std::string(reduce_algorithm_name(layout.all_reduce)),
                 .rule = "ranks that are threads of one process have no communication library",
                 .nearest = "ordered, or ranks that mpirun or srun starts"};
}

// What the run holds for checkpoints.
plan::CheckpointStaging staging_of(const RunConfig& config) {
  if (config.save_interval.kind == SaveInterval::Kind::kNone) {
    return config.resume.empty() ? plan::CheckpointStaging::kNone : plan::CheckpointStaging::kTile;
  }
  return config.async_saves ? plan::CheckpointStaging::kSnapshot : plan::CheckpointStaging::kTile;
}

}  // namespace

ResolvedRun resolve_run(Env& env, const RunConfig& config, const ResolveOptions& options) {
  if (Status status = check_backend(config, options.backend); !status) throw Error(status.failure());
  ResolvedRun run{.config = config, .plan = {}, .stored_layers = 0};
  const int ranks_here = options.ranks_here > 0 ? options.ranks_here : config.layout.world();
  const int share = std::max(1, env.core_count() / std::max(1, ranks_here));
  run.config.threads = config.threads > 0 ? config.threads : share;
  const Json document =
      options.model ? *options.model : model::load_config_document(env, config.model_config).or_throw();
  model::Config model_config = model::parse_config(document, model::config_file(env, config.model_config)).or_throw();
  if (is_read_once(env, config.model_config)) run.config.model_config = model_file_of(config.out);
  run.stored_layers = model_config.layers;
  if (options.layers > run.stored_layers && !config.model_weights.empty()) {
    throw Error(Failure{.option = "--layers",
                        .value = fmt::format("{}", options.layers),
                        .rule = fmt::format("the model whose weights model.weights are has {}", run.stored_layers),
                        .nearest = fmt::format("{}", run.stored_layers)});
  }
  if (options.layers > 0) {
    model_config.layers = options.layers;
  } else {
    run.model_document = document;
  }
  if (config.ignore >= model_config.vocabulary) {
    throw Error(Failure{.option = "data.ignore",
                        .value = fmt::format("{}", config.ignore),
                        .rule = fmt::format("the model's vocabulary has {} tokens", model_config.vocabulary),
                        .nearest = fmt::format("{}", model_config.vocabulary - 1)});
  }
  run.plan = parallel::make_run_plan(
      model_config, config.layout, config.batch,
      {.threads = static_cast<int>(run.config.threads),
       .compute = config.precision,
       .fp32_gradients = config.fp32_gradients,
       .evaluation_micro_batches = config.validation_tokens.empty() ? 0 : config.validation_micro_batches,
       .masked_targets = config.ignore >= 0,
       .backend = options.backend,
       .checkpoints = staging_of(config)},
      0);
  return run;
}

Json model_document(const ResolvedRun& run) {
  return run.model_document.is_null() ? model::to_hugging_face(run.plan.table.config) : run.model_document;
}

std::string describe_run(const ResolvedRun& run) {
  const plan::Batch& batch = run.config.batch;
  const std::int64_t micro_batches = plan::micro_batches(run.config.layout, batch);
  const std::int64_t parameters = run.plan.table.total();
  const double flops = model::model_flops(run.plan.table.config, batch.global_batch, batch.sequence).count;
  std::string text = fmt::format("model   {}, {} parameters\n", model::family_name(run.plan.table.config.family),
                                 format_exact(parameters));
  text += fmt::format(
      "layout  {}, recompute {}{}{}\n", plan::describe(run.config.layout),
      model::recompute_name(run.config.layout.recompute),
      is_narrow(run.config.precision) ? fmt::format(", {}", plan::precision_name(run.config.precision)) : "",
      run.config.fp32_gradients ? " with fp32 gradients" : "");
  text += fmt::format("batch   {} sequences = {} a micro-batch x {} micro-batch{} x {} replica{}\n", batch.global_batch,
                      batch.micro_batch, micro_batches, micro_batches == 1 ? "" : "es", run.config.layout.dp,
                      run.config.layout.dp == 1 ? "" : "s");
  text += fmt::format("        {} sequences x {} tokens = {} tokens and {:.3g} model flops a step\n",
                      batch.global_batch, batch.sequence, format_exact(plan::tokens_per_step(batch)), flops);
  return text;
}

void check_dry_run(Env& env, Log& log, const ResolvedRun& run, bool all_here) {
  check_run(env, run);
  const RunStart start = find_start(env, run.config);
  check_start(env, run, start, open_training(env, run));
  if (start.checkpoints.empty()) check_weights(env, run);
  check_tokens(env, log, run);
  check_room(env, run);
  if (!all_here) return;
  check_memory(env, run, all_ranks(run.config.layout));
}

}  // namespace trireme::train
