#pragma once

// A run's directory: run.toml, metrics.jsonl, model/, checkpoints/. What is in it decides how a run starts: anew, or
// from a checkpoint. Nothing is overwritten unless asked, and nothing starts from random weights because a checkpoint
// is missing.

#include <memory>
#include <string>
#include <vector>

#include "base/env.h"
#include "engine/train/control.h"
#include "engine/train/run_config.h"

namespace trireme::train {

// checkpoints/ of a run directory; metrics.jsonl; and a file that is there as long as no checkpoint ever was: a run
// that ended before its first one may begin anew without being asked.
std::string checkpoints_of(const std::string& out);
std::string metrics_of(const std::string& out);
std::string unsaved_mark_of(const std::string& out);

struct RunStart {
  std::vector<std::string> checkpoints;  // to start from, in order of preference; empty: anew
  bool continues = false;                // they are this directory's own
};
// Refused (Error): an out directory or trace that is in use for something else; files of another run without
// out.overwrite; checkpoint.resume that names no checkpoint; checkpoint.interval none where the directory has
// checkpoints and none is asked for.
RunStart find_start(Env& env, const RunConfig& config);

// Claims the directory: refuses while another run has it, and looks again at what is there: `start` is brought up to
// date. Nothing in it is touched.
std::unique_ptr<FileLock> claim_directory(Env& env, const RunConfig& config, RunStart& start);
// All ranks, together; hosts: theirs. That every host sees the leader's directory: Error names those that do not. Ranks
// of one host are not asked.
void check_shared(Env& env, const std::string& out, const std::vector<std::string>& hosts, Control& control);
// Once the run has its state: removes what a run that begins anew replaces, writes the resolved run.toml.
void prepare_directory(Env& env, const RunConfig& config, const RunStart& start);

}  // namespace trireme::train
