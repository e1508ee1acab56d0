#include "engine/train/run_progress.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace trireme::train {
namespace {

// Until a save was measured: rates of a slow copy and a slow disk.
constexpr double kCopyRate = 4e9, kWriteRate = 0.5e9;  // bytes a second
constexpr Seconds kDefaultMtbf{24 * 3600.0};

}  // namespace

std::string program_text() {
  return fmt::format("trireme {}, GCC {}, {}", TRIREME_VERSION, __VERSION__, kernels::cpu_fingerprint());
}

std::string version_text() {
  return fmt::format("trireme {} ({} build)\nGCC {}, {}", TRIREME_VERSION, TRIREME_BUILD_TYPE, __VERSION__,
                     kernels::cpu_fingerprint());
}

RunProgress::RunProgress(Env& env, const ResolvedRun& run, const Resumed& from, std::int64_t seen,
                         std::int64_t incarnation)
    : env_(env), run_(run), start_(from.progress), begun_(env.now()) {
  const std::int64_t last = std::max(seen, from.progress.incarnation);
  const bool saved_at_its_end = from.reason != "interval" && last == from.progress.incarnation;
  if (!from.path.empty() && !saved_at_its_end) start_.failures += std::max<std::int64_t>(1, last - start_.incarnation);
  start_.incarnation = incarnation;
}

checkpoint::Progress RunProgress::at(std::int64_t step) const {
  const plan::Batch& batch = run_.config.batch;
  checkpoint::Progress progress = start_;
  progress.step = step;
  progress.samples += (step - start_.step) * batch.global_batch;
  progress.tokens += (step - start_.step) * plan::tokens_per_step(batch);
  progress.elapsed_s += env_.now().count - begun_.count;
  return progress;
}

SavePolicy RunProgress::policy() const {
  const plan::Layout& layout = run_.config.layout;
  const double bytes = static_cast<double>(save_bytes(run_.plan.table, layout).count);
  const Seconds write{bytes / kWriteRate};
  return {.interval = run_.config.save_interval,
          .mtbf = run_.config.mtbf.count > 0 ? run_.config.mtbf : kDefaultMtbf,
          .failures = start_.failures,
          .elapsed = Seconds{start_.elapsed_s},
          .expected_stall = run_.config.async_saves ? Seconds{bytes / layout.world() / kCopyRate} : write,
          .expected_write = write,
          .last_step = run_.config.steps};
}

SaveFacts RunProgress::facts(const Json& data) const {
  const RunConfig& config = run_.config;
  const auto sync_metrics = [&env = env_, path = metrics_of(config.out)] {
    const std::unique_ptr<Writer> metrics = env.append_file(path);
    metrics->sync();
    metrics->close();
  };
  const auto unmark = [&env = env_, path = unsaved_mark_of(config.out)] {
    if (env.exists(path)) env.remove_file(path);
  };
  const auto check = [&env = env_, out = config.out, own = incarnation()] {
    checkpoint::check_incarnation(env, out, own);
  };
  SaveFacts facts{.about = {},
                  .retention = config.retention,
                  .before_commit = sync_metrics,
                  .may_commit = check,
                  .after_commit = unmark};
  facts.about.program = program_text();
  facts.about.layout = plan::describe(config.layout);
  facts.about.model = model_document(run_);
  facts.about.run = to_json(config);
  facts.about.data = data;
  return facts;
}

}  // namespace trireme::train
