#include "engine/train/run_directory.h"

#include <algorithm>

#include <fmt/format.h>

#include "checkpoint/find.h"
#include "checkpoint/model_files.h"
#include "checkpoint/reader.h"
#include "checkpoint/store.h"
#include "telemetry/step_record.h"

namespace trireme::train {
namespace {

std::string model_of(const std::string& out) { return join_path(out, "model"); }

Error refused(std::string option, std::string value, std::string rule, std::string nearest = "") {
  return Error(Failure{
      .option = std::move(option), .value = std::move(value), .rule = std::move(rule), .nearest = std::move(nearest)});
}

// Files that a run writes beside its checkpoints.
std::vector<std::string> run_files(Env& env, const std::string& out) {
  std::vector<std::string> files{join_path(out, "run.toml"), metrics_of(out)};
  const std::string model = model_of(out);
  if (env.is_directory(model)) {
    for (const std::string& name : env.list_directory(model)) {
      const bool ours = name == "config.json" || name.find(".safetensors") != std::string::npos;
      if (ours) files.push_back(join_path(model, name));
    }
  }
  std::erase_if(files, [&](const std::string& file) { return env.kind_of(file) == EntryKind::kNone; });
  return files;
}

// Another model's tokenizer would be taken for the new one's.
void remove_model_files(Env& env, const std::string& model) {
  for (const std::string& name : env.list_directory(model)) {
    const std::string path = join_path(model, name);
    if (checkpoint::is_carried(name) && !env.is_directory(path)) env.remove_file(path);
  }
}

// A link to an empty directory is where the user wants the model. In any other there are files that are not this run's
// to replace, or that an earlier end of it has written: they stay, and the run has a directory of its own.
void unlink_model(Env& env, Log& log, const std::string& out) {
  const std::string model = model_of(out);
  if (env.kind_of(model) != EntryKind::kLink) return;
  if (env.is_directory(model) && env.list_directory(model).empty()) return;
  env.remove_file(model);
  log.warning("{} was a link to what is not an empty directory: the link is removed, what it named stays as it is",
              model);
}

void remove_run_files(Env& env, const std::string& out) {
  for (const std::string& file : run_files(env, out)) {
    if (env.kind_of(file) != EntryKind::kDirectory) env.remove_file(file);
  }
}

// The newest first. Shards without a manifest, where no save was ever completed, are not this run's.
std::vector<std::string> checkpoints_in(Env& env, const std::string& out) {
  const checkpoint::Store store(env, checkpoints_of(out));
  std::vector<std::string> paths;
  for (const std::int64_t step : store.steps()) paths.insert(paths.begin(), store.path_of(step));
  const auto has_manifest = [&](const std::string& path) {
    return env.exists(join_path(path, checkpoint::kManifestFile));
  };
  if (env.exists(unsaved_mark_of(out)) && std::ranges::none_of(paths, has_manifest)) paths.clear();
  return paths;
}

void check_kinds(Env& env, const RunConfig& config) {
  if (env.exists(config.out) && !env.is_directory(config.out)) {
    throw refused("out.directory", config.out, "is a file");
  }
  if (!config.trace.empty() && env.is_directory(config.trace)) {
    throw refused("out.trace", config.trace, "is a directory");
  }
  if (!config.trace.empty() && env.exists(config.trace) && !config.overwrite) {
    throw refused("out.trace", config.trace, "is there already, and is not overwritten unless asked",
                  "another --trace, or --overwrite");
  }
}

// A run begins anew: in an empty place, or where overwriting was asked for.
void check_empty(Env& env, const RunConfig& config) {
  if (config.overwrite || !env.exists(config.out)) return;
  if (!checkpoints_in(env, config.out).empty()) {
    throw refused("out.directory", config.out, "holds checkpoints of another run", "another --out, or --overwrite");
  }
  if (env.exists(unsaved_mark_of(config.out))) return;
  const std::vector<std::string> files = run_files(env, config.out);
  if (files.empty()) return;
  throw refused("out.directory", config.out,
                fmt::format("holds {} already, and no checkpoint to go on from", base_name(files.front())),
                "another --out, or --overwrite");
}

bool is_inside(Env& env, const std::string& checkpoint, const std::string& out) {
  const std::string own = checkpoints_of(out);
  return env.is_directory(own) && directory_name(env.real_path(checkpoint)) == env.real_path(own);
}

RunStart start_as_asked(Env& env, const RunConfig& config) {
  Result<std::vector<std::string>> found = checkpoint::find_checkpoints(env, config.resume);
  if (!found) {
    Failure failure = found.failure();
    failure.option = "checkpoint.resume";
    failure.value = config.resume;
    throw Error(failure);
  }
  if (found->empty()) {
    const Failure failure = checkpoint::newest_checkpoint(env, config.resume).failure();
    throw refused("checkpoint.resume", config.resume, failure.rule, failure.nearest);
  }
  RunStart start{.checkpoints = *found, .continues = is_inside(env, found->front(), config.out)};
  if (!start.continues) {
    check_empty(env, config);
  } else if (config.overwrite) {
    throw refused("out.overwrite", config.out, "would remove the checkpoint that the run is to start from",
                  "one of --overwrite and --resume, or another --out");
  }
  return start;
}

}  // namespace

std::string checkpoints_of(const std::string& out) { return join_path(out, "checkpoints"); }
std::string unsaved_mark_of(const std::string& out) { return join_path(out, ".unsaved"); }
std::string metrics_of(const std::string& out) { return join_path(out, "metrics.jsonl"); }
std::string model_file_of(const std::string& out) { return join_path(out, "model/config.json"); }

RunStart find_start(Env& env, const RunConfig& config) {
  check_kinds(env, config);
  if (!config.resume.empty()) return start_as_asked(env, config);
  RunStart start;
  if (!config.overwrite) start.checkpoints = checkpoints_in(env, config.out);
  start.continues = !start.checkpoints.empty();
  if (!start.continues) {
    check_empty(env, config);
  } else if (config.save_interval.kind == SaveInterval::Kind::kNone) {
    throw refused("checkpoint.interval", "none",
                  fmt::format("{} holds {}, and a run that goes on from one saves too", config.out,
                              base_name(start.checkpoints.front())),
                  "auto, or --overwrite to begin anew");
  }
  return start;
}

// The incarnation begins before what is there is looked at: from then on no earlier start adds to it.
std::int64_t incarnation_seen(Env& env, const std::string& out) {
  std::int64_t seen = 0;
  const checkpoint::Store store(env, checkpoints_of(out));
  for (const std::int64_t step : store.steps()) {
    const Result<checkpoint::Manifest> manifest = checkpoint::Reader::open_manifest(env, store.path_of(step));
    if (manifest) seen = std::max(seen, manifest->progress.incarnation);
  }
  for (const telemetry::StepRecord& line : telemetry::read_steps(env, metrics_of(out))) {
    seen = std::max(seen, line.incarnation);
  }
  return seen;
}

DirectoryClaim::DirectoryClaim(Env& env, const RunConfig& config, std::optional<std::int64_t> supervised,
                               RunStart& start)
    : env_(env),
      out_(config.out),
      lease_(supervised ? nullptr : checkpoint::Lease::claim(env, config.out)),
      incarnation_(supervised ? *supervised : lease_->begin_incarnation()),
      kept_(env.now()) {
  if (supervised) checkpoint::check_incarnation(env, config.out, incarnation_);
  start = find_start(env, config);  // what came in between
}

std::int64_t DirectoryClaim::incarnation_above(std::int64_t least) {
  if (lease_ != nullptr && incarnation_ <= least) incarnation_ = lease_->begin_incarnation(least);
  return incarnation_;
}

void DirectoryClaim::keep() {
  if (env_.now().count - kept_.count < checkpoint::kRenewEvery_s) return;
  kept_ = env_.now();
  if (lease_ != nullptr) return lease_->renew();
  if (checkpoint::incarnation_is(env_, out_, incarnation_)) {
    away_since_.reset();
    return;
  }
  if (!away_since_) away_since_ = kept_;
  if (kept_.count - away_since_->count >= checkpoint::kLeaseAway_s) {
    throw checkpoint::incarnation_unknown(out_, incarnation_);
  }
}

void check_shared(Env& env, const std::string& out, const std::vector<std::string>& hosts, Control& control) {
  if (std::ranges::all_of(hosts, [&](const std::string& host) { return host == hosts.front(); })) return;
  // A name that no host can have looked up before, so that none answers from memory.
  const std::string own = fmt::format(".shared-{}-{}", env.process_id(), env.wall_time());
  if (control.leads()) env.write_file_atomically(join_path(out, own), "");
  const std::string mark = join_path(out, control.share(own).front());
  const bool sees = env.exists(mark);
  const std::vector<std::string> blind = control.share(sees ? "" : env.host_name());
  if (control.leads()) env.remove_file(mark);
  const auto found = std::ranges::find_if(blind, [](const std::string& host) { return !host.empty(); });
  if (found == blind.end()) return;
  throw refused("out.directory", out, fmt::format("host {} does not see the one of host {}", *found, hosts.front()),
                "a directory on a file system that all hosts share, or checkpoint.interval none");
}

namespace {

// Without consent nothing is removed that is not known as a killed save's.
checkpoint::Removal begin_anew(checkpoint::Store& store, const RunConfig& config) {
  if (config.overwrite) return store.remove_all();
  checkpoint::Removal removal = store.remove_partial();
  for (std::string& name : store.set_aside_after(-1)) removal.left.push_back(std::move(name));
  return removal;
}

}  // namespace

checkpoint::Store store_of(Env& env, const RunConfig& config, std::int64_t incarnation) {
  checkpoint::Store store(env, checkpoints_of(config.out), incarnation);
  store.share_with_others([out = config.out](const checkpoint::Manifest& manifest) {
    const Json* section = manifest.run.find("out");
    const Json* directory = section == nullptr ? nullptr : section->find("directory");
    return directory != nullptr && *directory == Json(out);
  });
  return store;
}

void tell_left(Log& log, const std::string& directory, const checkpoint::Removal& removal) {
  for (const std::string& name : removal.left) {
    log.warning("{} holds what is not this run's to remove, and stays", join_path(directory, name));
  }
}

void prepare_directory(Env& env, Log& log, const ResolvedRun& run, const RunStart& start) {
  const RunConfig& config = run.config;
  unlink_model(env, log, config.out);
  env.make_directories(model_of(config.out));
  if (!config.trace.empty()) env.make_directories(directory_name(config.trace));
  checkpoint::Store store = store_of(env, config);
  try {
    tell_left(log, store.directory(), start.continues ? store.remove_partial() : begin_anew(store, config));
  } catch (const Error& error) {
    if (!start.continues) throw;
    log.warning("what a killed save left stays: {}", error.what());
  }
  if (!start.continues) remove_run_files(env, config.out);
  if (!start.continues && config.overwrite) remove_model_files(env, model_of(config.out));
  const std::string mark = unsaved_mark_of(config.out);
  if (start.continues && env.exists(mark)) env.remove_file(mark);
  if (!start.continues) env.write_file_atomically(mark, "");
  if (config.save_interval.kind != SaveInterval::Kind::kNone) {
    env.make_directories(store.directory());
    env.sync_directory(config.out);
    env.sync_directory(directory_name(config.out));
  }
  if (config.model_config == model_file_of(config.out)) {
    env.write_file_atomically(config.model_config, model_document(run).dump(2));
  }
  RunConfig resolved = config;
  resolved.overwrite = false;  // consents for this time
  resolved.accept.clear();
  resolved.resume.clear();
  resolved.trace.clear();  // a look at this time
  resolved.trace_first = resolved.trace_last = 0;
  env.write_file_atomically(join_path(config.out, "run.toml"), to_toml(resolved));
}

}  // namespace trireme::train
