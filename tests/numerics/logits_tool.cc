// A tool of the parity test against transformers: logits_tool MODEL_DIR TOKENS SEQUENCES OUT [EXPORT_DIR]
// TOKENS: raw int32 [sequences, sequence]; OUT: raw float32 logits; EXPORT_DIR: the model written out again.

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "engine/parallel/rank.h"
#include "engine/train/weights.h"

int main(int argc, char** argv) {
  using namespace trireme;
  if (argc < 5) return 2;
  Env& env = posix_env();
  const std::unique_ptr<Log> log = make_stderr_log();
  try {
    const std::string raw = env.read_file(argv[2]);
    std::vector<std::int32_t> ids(raw.size() / 4);
    std::memcpy(ids.data(), raw.data(), raw.size());
    const std::int64_t sequences = std::atoll(argv[3]);
    const std::int64_t sequence = static_cast<std::int64_t>(ids.size()) / sequences;
    parallel::RunPlan plan = parallel::make_run_plan(
        model::load_config(env, argv[1]).or_throw(), {},
        {.global_batch = sequences, .micro_batch = sequences, .sequence = sequence},
        {.threads = env.core_count(), .compute = DType::kF32, .evaluation_micro_batches = 1}, 0);
    parallel::Rank rank(env, *log, kernels::make_cpu_device(env.core_count()), std::move(plan), {});
    train::import_weights(env, rank.device(), rank.plan(), argv[1], rank.executor().state());
    const std::unique_ptr<Writer> out = env.create_file(argv[4]);
    rank.executor().logits(ids, [&](std::int64_t, std::int64_t, const std::vector<double>& block) {
      const std::vector<float> narrow(block.begin(), block.end());
      out->write(std::as_bytes(std::span(narrow)));
    });
    out->close();
    if (argc > 5) {
      train::Control alone(0, 1, nullptr);
      train::export_model(env, {rank.plan(), rank.device(), rank.executor().state()}, alone, argv[5]);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
