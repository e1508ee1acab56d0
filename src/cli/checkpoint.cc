#include <fmt/format.h>

#include "checkpoint/find.h"
#include "cli/checkpoint_commands.h"
#include "cli/commands.h"

namespace trireme::cli {

std::string chosen_checkpoint(Env& env, const std::string& path) {
  std::string newest = checkpoint::newest_checkpoint(env, path).or_throw();
  const bool named_itself =
      env.exists(join_path(path, checkpoint::kManifestFile)) || base_name(path) == base_name(newest);
  if (!named_itself) fmt::print(stderr, "the newest complete checkpoint of {}: {}\n", path, newest);
  return newest;
}

void ProgressLine::update(Bytes done, Bytes total) {
  constexpr double kEvery = 0.2;  // seconds
  const Seconds now = env_.now();
  if (now.count - last_.count < kEvery) return;
  last_ = now;
  const double rate = static_cast<double>(done.count) / (now.count - begun_.count);
  screen_.status({fmt::format("{}: {} of {}", what_, format_bytes(done), format_bytes(total)),
                  fmt::format("{:.0f} MB/s", rate / 1e6)});
}

void declare_checkpoint(Command& root, Env& env) {
  Command& command = root.command("checkpoint", "What is in a checkpoint, is it whole, and to and from Hugging Face");
  declare_checkpoint_ls(command, env);
  declare_checkpoint_show(command, env);
  declare_checkpoint_verify(command, env);
  declare_checkpoint_diff(command, env);
  declare_checkpoint_export(command, env);
  declare_checkpoint_import(command, env);
  command.examples(
      "  trireme checkpoint ls runs/one                              every save of a run\n"
      "  trireme checkpoint show runs/one                            what the newest one holds\n"
      "  trireme checkpoint verify runs/one                          every byte of it\n"
      "  trireme checkpoint diff runs/a runs/b                        do two runs stand at the same values?\n"
      "  trireme checkpoint export runs/one --out model --dtype bf16   for transformers\n"
      "  trireme checkpoint import models/gpt2 --out start            a model to go on training from");
}

}  // namespace trireme::cli
