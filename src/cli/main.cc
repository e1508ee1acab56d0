#include <string_view>

#include "base/descriptor.h"
#include "base/process.h"
#include "base/stop_signals.h"
#include "cli/commands.h"
#include "engine/train/run_progress.h"

namespace {

// A run that is asked to stop before it has begun must hear of it: signals wait from before the libraries begin until
// the run says what becomes of them.
__attribute__((section(".preinit_array"), used)) void (*const kHoldSignals)() = &trireme::hold_stop_signals;

bool hears_stop_signals(int argc, char** argv) {
  const std::string_view command = argc > 1 ? argv[1] : "";
  return command == "train" || command == "worker";
}

}  // namespace

int main(int argc, char** argv) {
  using namespace trireme;
  if (!hears_stop_signals(argc, argv)) release_stop_signals();
  fill_standard_descriptors();
  ignore_broken_pipes();
  ignore_file_size_signals();
  name_this_process("trireme");
  const ExitCode code = cli::run_program(argc, argv, [](cli::Command& root) {
    Env& env = posix_env();
    cli::declare_plan(root, env);
    cli::declare_train(root, env);
    cli::declare_worker(root, env);
    cli::declare_drill(root, env);
    cli::declare_bench(root, env);
    cli::declare_verify(root, env);
    cli::declare_model(root, env);
    cli::declare_data(root, env);
    cli::declare_sample(root, env);
    cli::declare_checkpoint(root, env);
    cli::declare_report(root, env);
    root.version(train::version_text());
    root.examples(
        "  trireme plan bubble --stages 4                               how long a pipeline waits\n"
        "  trireme model examples/models/gpt2                           the parameter table and the exact count\n"
        "  trireme data tokenize book.txt --out data/book               a text as token files\n"
        "  trireme train examples/runs/small.toml --out runs/one        a run on them\n"
        "  trireme verify examples/runs/small.toml --layout.tp 2        the same model on another layout?\n"
        "  trireme sample runs/one/model --prompt 'The'                 text from what was trained\n"
        "  trireme checkpoint verify runs/one                           is what was saved whole?\n"
        "  trireme train examples/runs/small.toml --out runs/two --trace run.json\n"
        "  trireme report trace run.json --out page.html                a run's timelines as a picture");
  });
  return static_cast<int>(code);
}
