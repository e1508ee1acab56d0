#pragma once

// What the checkpoint commands share, and a function for each of them.

#include <optional>
#include <string>

#include "base/env.h"
#include "base/screen.h"
#include "base/units.h"
#include "checkpoint/manifest.h"
#include "cli/arguments.h"

namespace trireme::cli {

void declare_checkpoint_ls(Command& parent, Env& env);
void declare_checkpoint_show(Command& parent, Env& env);
void declare_checkpoint_verify(Command& parent, Env& env);
void declare_checkpoint_diff(Command& parent, Env& env);
void declare_checkpoint_export(Command& parent, Env& env);
void declare_checkpoint_import(Command& parent, Env& env);

// What a path argument may be, in words for --help.
inline constexpr const char* kCheckpointHelp =
    "a checkpoint, or a directory of them or a run: then the newest complete one";

// The directory of the checkpoint that a path means. Where it names several, or a run, this says on standard error
// which one was taken. Error: there is none.
std::string chosen_checkpoint(Env& env, const std::string& path);

// A line on a terminal that says how far a command has come, a few times a second; nothing elsewhere.
class ProgressLine {
 public:
  ProgressLine(Env& env, std::string what) : env_(env), what_(std::move(what)) {}
  ~ProgressLine() { screen_.clear_status(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  void update(Bytes done, Bytes total);

 private:
  Env& env_;
  std::string what_;
  Screen screen_{write_to_stderr, stderr_columns};
  Seconds begun_ = env_.now();
  Seconds last_ = begun_;
};

}  // namespace trireme::cli
