#include "engine/train/resume.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "checkpoint/checksum.h"
#include "engine/train/load_state.h"
#include "engine/train/same_run.h"

namespace trireme::train {
namespace {

// "" where the rank has all that it needs of the checkpoint; what is damaged otherwise. What a checkpoint has for all
// ranks alike, and what it may not be resumed as, is an Error.
struct Attempt {
  std::string damage = {};
  checkpoint::Manifest manifest = {};
  LoadedBytes bytes = {};
};
Attempt try_to_load(Env& env, const ResolvedRun& run, const std::string& path, const data::Sampler& tokens,
                    RankTrainer& rank) {
  const Result<checkpoint::Reader> reader = checkpoint::Reader::open(env, path);
  if (!reader) return {.damage = reader.failure().sentence()};
  if (Status status = check_same_run(reader->manifest(), path, run, data_identity(tokens)); !status) {
    throw Error(status.failure());
  }
  Attempt attempt{.manifest = reader->manifest()};
  try {
    parallel::Rank& own = rank.rank();
    attempt.bytes = load_state(*reader, own.device(), own.plan(), own.executor().state());
  } catch (const Error& error) {
    if (error.code() != ExitCode::kStorage) throw;
    attempt.damage = error.what();
  }
  return attempt;
}

// Each once, in the ranks' order.
std::string distinct(const std::vector<std::string>& texts) {
  std::vector<std::string> seen;
  for (const std::string& text : texts) {
    if (!text.empty() && std::find(seen.begin(), seen.end(), text) == seen.end()) seen.push_back(text);
  }
  return fmt::format("{}", fmt::join(seen, "; "));
}

}  // namespace

void check_start(Env& env, const ResolvedRun& run, const RunStart& start, const data::Sampler& tokens) {
  for (const std::string& path : start.checkpoints) {
    const Result<checkpoint::Manifest> manifest = checkpoint::Reader::open_manifest(env, path);
    if (!manifest) continue;
    if (Status status = check_same_run(*manifest, path, run, data_identity(tokens)); !status) {
      throw Error(status.failure());
    }
    return;
  }
}

Resumed load_checkpoint(Env& env, Log& log, const ResolvedRun& run, const std::vector<std::string>& leaders_list,
                        const data::Sampler& tokens, Control& control, RankTrainer& rank) {
  const std::int64_t count = control.decide(std::ssize(leaders_list));
  std::vector<std::string> damages;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::string path = control.share(control.leads() ? leaders_list[static_cast<std::size_t>(i)] : "").front();
    const Seconds before = env.now();
    Attempt attempt = try_to_load(env, run, path, tokens, rank);
    std::string damage = distinct(control.share(attempt.damage));
    if (!damage.empty()) {  // a disk may stumble once, and what is damaged stays so
      attempt = try_to_load(env, run, path, tokens, rank);
      const std::string again = distinct(control.share(attempt.damage));
      if (again.empty() && control.leads()) log.warning("{} was read a second time: {}", path, damage);
      damage = again;
    }
    if (damage.empty()) {
      const checkpoint::Progress& progress = attempt.manifest.progress;
      if (control.leads()) {
        log.info("goes on from step {} of {}, saved by {}: {} read for {} of rank 0's state in {}", progress.step, path,
                 attempt.manifest.layout, format_bytes(attempt.bytes.read), format_bytes(attempt.bytes.needed),
                 format_seconds(Seconds{env.now().count - before.count}));
      }
      return {.progress = progress, .reason = attempt.manifest.reason, .path = path};
    }
    damages.push_back(damage);
    if (control.leads()) log.warning("{} is damaged and passed over: {}", path, damage);
  }
  if (count == 0) return {};
  throw Error(
      ExitCode::kStorage, "checkpoint", "start",
      fmt::format("none of {} checkpoint{} is whole: {}", count, count == 1 ? "" : "s", fmt::join(damages, "; ")),
      "restore one from a copy, or begin anew with --overwrite; nothing was changed");
}

}  // namespace trireme::train
