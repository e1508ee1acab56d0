#include "checkpoint/lease.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/file_error.h"
#include "base/json.h"

namespace trireme::checkpoint {
namespace {

constexpr std::string_view kLockFile = ".lock";
constexpr std::string_view kLeaseFile = ".lease";
constexpr std::string_view kRenewalFile = ".renewal";
constexpr Seconds kBetweenLooks{0.1};

std::string to_text(const LeaseRecord& record) {
  return Json::object({{"host", record.host},
                       {"process", record.process},
                       {"boot", record.boot},
                       {"incarnation", record.incarnation},
                       {"run_elapsed_s", record.run_elapsed_s},
                       {"renewals", record.renewals},
                       {"since", record.since}})
             .dump() +
         "\n";
}

// Takes members out of an object; ok() turns false at the first that is not as it must be.
class Members {
 public:
  explicit Members(const Json& object) : object_(object) {}
  void take(std::string_view key, std::string& value) {
    if (const Json* found = object_.find(key); is(found != nullptr && found->is_string())) value = found->as_string();
  }
  void take(std::string_view key, std::int64_t& value) {
    const Json* found = object_.find(key);
    if (is(found != nullptr && found->is_integer() && found->as_integer() >= 0)) value = found->as_integer();
  }
  void take(std::string_view key, double& value) {
    const Json* found = object_.find(key);
    if (is(found != nullptr && found->is_number() && found->as_number() >= 0)) value = found->as_number();
  }
  bool ok() const { return ok_; }

 private:
  bool is(bool condition) {
    ok_ = ok_ && condition;
    return condition;
  }
  const Json& object_;
  bool ok_ = true;
};

std::optional<LeaseRecord> read_record(Env& env, const std::string& path) {
  if (!env.exists(path) || env.is_directory(path)) return std::nullopt;
  const Result<Json> json = parse_json(env.read_file(path), path);
  if (!json.ok()) return std::nullopt;
  LeaseRecord record;
  Members members(*json);
  members.take("host", record.host);
  members.take("process", record.process);
  members.take("boot", record.boot);
  members.take("incarnation", record.incarnation);
  members.take("run_elapsed_s", record.run_elapsed_s);
  members.take("renewals", record.renewals);
  members.take("since", record.since);
  return members.ok() ? std::optional(record) : std::nullopt;
}

// None also where the file may not be read now.
std::optional<LeaseRecord> try_read_record(Env& env, const std::string& path) {
  try {
    return read_record(env, path);
  } catch (const FileError& error) {
    if (error.trouble() == FileTrouble::kOther) throw;
    return std::nullopt;
  }
}

// As soon as it can be read; none after kLeaseAway.
std::optional<LeaseRecord> wait_for_record(Env& env, const std::string& path) {
  const Seconds begun = env.now();
  for (;;) {
    std::optional<LeaseRecord> found = try_read_record(env, path);
    if (found || env.now().count - begun.count >= kLeaseAway_s) return found;
    env.sleep(kBetweenLooks);
  }
}

bool same_holder(const LeaseRecord& a, const LeaseRecord& b) {
  return a.host == b.host && a.process == b.process && a.boot == b.boot && a.since == b.since;
}

std::string holder_text(const LeaseRecord& record) {
  if (record.process == 0) return fmt::format("host {}, which gave it up", record.host);
  return fmt::format("host {}, process {}, since {}", record.host, record.process, record.since);
}

Error refused(const std::string& out, const std::optional<LeaseRecord>& holder) {
  const bool named = holder && holder->process != 0;
  return Error(Failure{.option = "out.directory",
                       .value = out,
                       .rule = named ? "another run is writing there: " + holder_text(*holder)
                                     : std::string("another run is writing there"),
                       .nearest = "another --out"});
}

// What killed writers left of these files.
void remove_leftovers(Env& env, const std::string& out) {
  for (const std::string& name : env.list_directory(out)) {
    for (const std::string_view file : {kLeaseFile, kRenewalFile}) {
      if (name.starts_with(fmt::format("{}.partial.", file))) env.remove_file(join_path(out, name));
    }
  }
}

// A process of this host that is not there; or its number is this process's. Of other hosts, of this one before its
// last boot (two may have one name), and where another process has the number, only time tells.
bool is_known_gone(Env& env, const LeaseRecord& record) {
  if (record.host != env.host_name() || record.boot != env.boot_id()) return false;
  return record.process == env.process_id() || !env.process_is_alive(record.process);
}

// Until kLeaseWait has passed without a sign of the holder; what the directory says then. Refused if there is one.
std::optional<LeaseRecord> watch(Env& env, const std::string& out, const LeaseRecord& holder) {
  const Seconds begun = env.now();
  while (env.now().count - begun.count < kLeaseWait_s) {
    env.sleep(kBetweenLooks);
    const std::optional<LeaseRecord> now = read_lease(env, out);
    if (!now || *now == holder) continue;
    if (now->process != 0) throw refused(out, now);
    return now;
  }
  return holder;
}

}  // namespace

std::optional<LeaseRecord> read_lease(Env& env, const std::string& out) {
  std::optional<LeaseRecord> record = read_record(env, join_path(out, kLeaseFile));
  if (!record) return std::nullopt;
  const std::optional<LeaseRecord> renewal = read_record(env, join_path(out, kRenewalFile));
  if (renewal && same_holder(*record, *renewal)) {
    record->renewals = std::max(record->renewals, renewal->renewals);
    record->run_elapsed_s = std::max(record->run_elapsed_s, renewal->run_elapsed_s);
  }
  return record;
}

struct Lease::State {
  Env& env;
  std::string out;
  std::unique_ptr<FileLock> lock;
  LeaseRecord record;  // as it was written last, renewals too
  double elapsed_before = 0;
  Seconds begun{};
  bool taken_over = false;
  std::optional<Seconds> away_since = std::nullopt;

  std::string path(std::string_view file) const { return join_path(out, file); }
  double elapsed() const { return elapsed_before + (env.now().count - begun.count); }
  void write() { env.write_file_atomically(path(kLeaseFile), to_text(record)); }
  bool is_ours(const std::optional<LeaseRecord>& found) const {
    return found && same_holder(*found, record) && found->incarnation == record.incarnation;
  }
  void check_ours(const std::optional<LeaseRecord>& found) const {
    if (is_ours(found)) return;
    throw Error(ExitCode::kStorage, "checkpoint", "hold the lease of " + out,
                found ? "it was taken by " + holder_text(*found)
                      : fmt::format("{} is gone or damaged, and still so after {}", path(kLeaseFile),
                                    format_seconds(Seconds{kLeaseAway_s})),
                found ? "let one run alone write there"
                      : "bring the run directory back, then start the same run again: it goes on from its last "
                        "checkpoint");
  }
};

std::unique_ptr<Lease> Lease::claim(Env& env, const std::string& out) {
  env.make_directories_durably(out);
  std::unique_ptr<FileLock> lock = env.try_lock(join_path(out, kLockFile));
  std::optional<LeaseRecord> before = read_lease(env, out);
  if (lock == nullptr) throw refused(out, before);
  if (before && before->process != 0 && !is_known_gone(env, *before)) before = watch(env, out, *before);
  const bool held = before ? before->process != 0 : env.exists(join_path(out, kLeaseFile));
  if (!before) before = read_record(env, join_path(out, kRenewalFile));
  remove_leftovers(env, out);
  const LeaseRecord last = before.value_or(LeaseRecord{});
  auto state = std::make_unique<State>(State{.env = env,
                                             .out = out,
                                             .lock = std::move(lock),
                                             .record = last,
                                             .elapsed_before = last.run_elapsed_s,
                                             .begun = env.now(),
                                             .taken_over = held});
  state->record.host = env.host_name();
  state->record.process = env.process_id();
  state->record.boot = env.boot_id();
  state->record.since = env.wall_time();
  state->write();
  return std::unique_ptr<Lease>(new Lease(std::move(state)));
}

Lease::Lease(std::unique_ptr<State> state) : state_(std::move(state)) {}

Lease::~Lease() {
  try {
    if (!state_->is_ours(read_record(state_->env, state_->path(kLeaseFile)))) return;
    state_->record.run_elapsed_s = state_->elapsed();
    state_->record.process = 0;
    state_->write();
  } catch (const std::exception&) {
    // Then it looks like that of a holder that was killed, and is taken over like one.
  }
}

std::int64_t Lease::incarnation() const { return state_->record.incarnation; }

std::int64_t Lease::begin_incarnation(std::int64_t least, Env* env) {
  state_->check_ours(wait_for_record(state_->env, state_->path(kLeaseFile)));
  LeaseRecord next = state_->record;
  next.incarnation = std::max(next.incarnation, least) + 1;
  next.run_elapsed_s = state_->elapsed();
  (env == nullptr ? state_->env : *env).write_file_atomically(state_->path(kLeaseFile), to_text(next));
  state_->record = next;
  return next.incarnation;
}

void Lease::renew() {
  const std::optional<LeaseRecord> found = try_read_record(state_->env, state_->path(kLeaseFile));
  if (found) {
    state_->away_since.reset();
  } else if (!state_->away_since) {
    state_->away_since = state_->env.now();
  }
  if (!found && state_->env.now().count - state_->away_since->count < kLeaseAway_s) return;
  state_->check_ours(found);
  state_->record.run_elapsed_s = state_->elapsed();
  ++state_->record.renewals;
  try {
    state_->env.replace_file(state_->path(kRenewalFile), to_text(state_->record));
  } catch (const Error&) {
    // The next one may be written; until then this holder is as silent as one that is gone.
  }
}

bool Lease::is_away() const { return state_->away_since.has_value(); }
double Lease::run_elapsed_s() const { return state_->elapsed(); }
bool Lease::taken_over() const { return state_->taken_over; }

bool incarnation_is(Env& env, const std::string& out, std::int64_t incarnation) {
  const std::optional<LeaseRecord> found = try_read_record(env, join_path(out, kLeaseFile));
  if (!found || found->incarnation == incarnation) return found.has_value();
  throw Error(ExitCode::kRankLost, "checkpoint", fmt::format("write as incarnation {} of {}", incarnation, out),
              fmt::format("the run has incarnation {} now: {}", found->incarnation, holder_text(*found)),
              "another start of the run goes on in its place; end this one");
}

Error incarnation_unknown(const std::string& out, std::int64_t incarnation) {
  return {ExitCode::kStorage, "checkpoint", fmt::format("write as incarnation {} of {}", incarnation, out),
          fmt::format("{} is gone or damaged, and still so after {}: nobody knows whose the directory is",
                      join_path(out, kLeaseFile), format_seconds(Seconds{kLeaseAway_s})),
          "bring the run directory back, then start the same run again: it goes on from its last checkpoint"};
}

void check_incarnation(Env& env, const std::string& out, std::int64_t incarnation) {
  wait_for_record(env, join_path(out, kLeaseFile));
  if (!incarnation_is(env, out, incarnation)) throw incarnation_unknown(out, incarnation);
}

}  // namespace trireme::checkpoint
