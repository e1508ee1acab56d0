#pragma once

// A run's directory: run.toml, metrics.jsonl, model/, checkpoints/. What is in it decides how a run starts: anew, or
// from a checkpoint. Nothing is overwritten unless asked, and nothing starts from random weights because a checkpoint
// is missing.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/env.h"
#include "base/log.h"
#include "checkpoint/lease.h"
#include "checkpoint/store.h"
#include "engine/train/control.h"
#include "engine/train/trainer.h"

namespace trireme::train {

// checkpoints/ of a run directory; metrics.jsonl; model/config.json; and a file that is there as long as no checkpoint
// ever was, of a run that writes none until its end in order: one that ended before may begin anew without being asked.
std::string checkpoints_of(const std::string& out);
std::string metrics_of(const std::string& out);
std::string model_file_of(const std::string& out);
std::string unsaved_mark_of(const std::string& out);

struct RunStart {
  std::vector<std::string> checkpoints;  // to start from, in order of preference; empty: anew
  bool continues = false;                // they are this directory's own
};
// Refused (Error): an out directory or trace that is in use for something else; files of another run without
// out.overwrite; checkpoint.resume that names no checkpoint; checkpoint.interval none where the directory has
// checkpoints and none is asked for.
RunStart find_start(Env& env, const RunConfig& config);

// The highest incarnation that the directory's newest readable checkpoint or its metrics tell of; 0: none.
std::int64_t incarnation_seen(Env& env, const std::string& out);

// The leader's right to write into the directory, as an incarnation of the run: it holds the lease, or the supervisor
// of the run does.
class DirectoryClaim {
 public:
  // supervised: the incarnation that a supervisor began. Refused (Error) while another run has the directory; kRankLost
  // where the supervisor has begun another. Looks again at what is there: `start` is brought up to date. Else nothing
  // in the directory is touched.
  DirectoryClaim(Env& env, const RunConfig& config, std::optional<std::int64_t> supervised, RunStart& start);

  // Of this start. Where the claim holds the lease, it is above `least`: what the checkpoint and the metrics had.
  std::int64_t incarnation_above(std::int64_t least);
  // Between steps. Once in kRenewEvery it renews the lease or, of a supervised run, looks whether the incarnation is
  // still the run's: an Error ends a start that another has replaced, or whose directory is away for longer than
  // kLeaseAway.
  void keep();

 private:
  Env& env_;
  std::string out_;
  std::unique_ptr<checkpoint::Lease> lease_;  // null: the supervisor holds it
  std::int64_t incarnation_;
  Seconds kept_;
  std::optional<Seconds> away_since_;
};
// All ranks, together; hosts: theirs. That every host sees the leader's directory: Error names those that do not. Ranks
// of one host are not asked.
void check_shared(Env& env, const std::string& out, const std::vector<std::string>& hosts, Control& control);
// The run's checkpoints, as which `incarnation` writes there. Of a directory that is a link it removes those alone that
// were saved under this out.directory.
checkpoint::Store store_of(Env& env, const RunConfig& config, std::int64_t incarnation = 0);
// Once the run has its state: removes what a run that begins anew replaces, writes the resolved run.toml, and
// the model's config.json where that names it. No link of the directory is followed by a removal.
void prepare_directory(Env& env, Log& log, const ResolvedRun& run, const RunStart& start);
// What a removal had to leave, and under which names.
void tell_left(Log& log, const std::string& directory, const checkpoint::Removal& removal);

}  // namespace trireme::train
