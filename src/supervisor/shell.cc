#include "supervisor/shell.h"

#include <algorithm>
#include <csignal>
#include <deque>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/captured_output.h"
#include "base/patient_env.h"
#include "base/stop_signals.h"
#include "telemetry/rank_log.h"

namespace trireme::supervisor {
namespace {

constexpr double kStopped_s = 1.0;       // between two looks at the clock: this process was stopped
constexpr double kTurn_s = 0.2;          // at most between two looks at files and the lease
constexpr double kLauncherEnd_s = 5.0;   // for a launcher whose workers are gone, before it is ended by force
constexpr double kProbeWithin_s = 10.0;  // of a host that does not even refuse

constexpr std::string_view kScratch = ".launcher-";

// What was started for a start of the workers: mpirun, srun, or the one process of all ranks.
struct Launcher {
  std::unique_ptr<Child> child;
  std::unique_ptr<CapturedOutput> output;  // null: it goes where this process's goes
  std::string scratch;                     // directory of what it may leave
  Seconds force_at{};                      // of one that is to end
};

struct RunningProbe {
  std::string host;
  std::unique_ptr<Child> child;
  Seconds force_at;
};

void remove_scratch(Env& env, const std::string& path) {
  if (path.empty()) return;
  try {
    env.remove_tree(path);
  } catch (const Error&) {
    // What a launcher is still about to remove itself.
  }
}

// The name that a launcher of this program has given: others are not its to remove.
bool is_scratch(std::string_view name) {
  if (!name.starts_with(kScratch)) return false;
  const std::string_view number = name.substr(kScratch.size());
  return !number.empty() && number.find_first_not_of("0123456789") == std::string_view::npos;
}

class Shell {
 public:
  Shell(Env& env, Log& log, checkpoint::Lease& lease, Decider& decider, const ShellOptions& options)
      : env_(env),
        log_(log),
        lease_(lease),
        decider_(decider),
        options_(options),
        secret_(random_secret()),
        patient_(env, log, options.out),
        server_(env, options.listen(), secret_) {
    patient_.watch();  // the lease is held, so the directory was there
    if (!options_.hosts_file.empty()) hosts_text_ = env_.read_file(options_.hosts_file);
  }

  ShellOutcome run() {
    catch_supervisor_signals();
    catch_suspension();
    remove_old_scratch();
    renewed_ = looked_at_clock_ = env_.now();
    decide(Begin{.hosts = options_.hosts, .supervisor_lost = lease_.taken_over()});
    while (!finish_) turn();
    const Summary summary = decider_.summary(now());
    end_all();
    write_lines();
    for (const std::string& line : lines_) log_.warning("supervisor: not written into incidents.jsonl: {}", line);
    const ExitCode code = finish_->code;
    const bool told = finish_->never_began || code == ExitCode::kUsage || code == ExitCode::kDoesNotFit;
    if (!told) tell_launcher_said();
    return {*finish_, summary, said_};
  }

 private:
  // Of launchers whose supervisor was killed.
  void remove_old_scratch() {
    for (const std::string& name : env_.list_directory(options_.out)) {
      if (is_scratch(name)) remove_scratch(env_, join_path(options_.out, name));
    }
  }

  void turn() {
    std::vector<Waited> waited;
    server_.add_waited(waited);
    for (const Launcher* launcher : launchers()) waited.push_back({.descriptor = launcher->child->descriptor()});
    const double until = std::min(decider_.next_tick().count - now().count, kTurn_s);
    wait_for_any(waited, Seconds{std::max(until, 0.0)});
    (void)now();
    if (const double stopped = std::exchange(stopped_s_, 0); stopped > 0) {
      log_.info("supervisor: was stopped for {:.1f} s, and goes on", stopped);
      decide(Rested{});
    }
    hear();
    watch_children();
    watch_signals();
    if (env_.now().count - looked_.count >= kTurn_s) {
      looked_ = env_.now();
      watch_stop_file();
      watch_hosts_file();
    }
    if (env_.now().count - renewed_.count >= checkpoint::kRenewEvery_s) {
      renew();
    }
    if (now().count >= decider_.next_tick().count) decide(Tick{});
    if (options_.each_turn) options_.each_turn(env_.now());
  }

  // A run directory that is away, or full, may be back before anybody needs it.
  void renew() {
    lease_.renew();
    renewed_ = env_.now();
    if (lease_.is_away() != std::exchange(away_, lease_.is_away())) {
      away_ ? log_.warning("supervisor: {} is away, or its lease cannot be read; the run goes on, for at most {}",
                           options_.out, format_seconds(Seconds{checkpoint::kLeaseAway_s}))
            : log_.info("supervisor: {} is there again", options_.out);
    }
    write_lines();
  }

  std::vector<const Launcher*> launchers() const {
    std::vector<const Launcher*> all;
    if (present_) all.push_back(&*present_);
    for (const Launcher& launcher : ending_) all.push_back(&launcher);
    return all;
  }

  // Some rank gets on: what the launcher writes from now on is the ranks'.
  static bool begins(const telemetry::Message& message) {
    const auto* alive = std::get_if<telemetry::Alive>(&message);
    return std::holds_alternative<telemetry::Resumed>(message) ||
           (alive != nullptr &&
            std::ranges::any_of(alive->ranks, [](const telemetry::RankProgress& rank) { return rank.advances > 0; }));
  }

  // Everything that has come is heard before time is looked at.
  void hear() {
    ControlServer::News news = server_.work();
    for (PeerMessage& message : news.messages) {
      if (begins(message.message) && present_ && present_->output) present_->output->pass_on();
      if (const auto* hello = std::get_if<telemetry::Hello>(&message.message)) {
        (hello->keeper ? keepers_ : ranks_).push_back(message.peer);
      }
      if (const auto* resumed = std::get_if<telemetry::Resumed>(&message.message)) {
        begun_ = true;
        gemm_flops_per_s_ = resumed->gemm_flops_per_s;
      }
      decide(Heard{.peer = message.peer, .message = std::move(message.message)});
    }
    for (PeerId peer : news.gone) {
      std::erase(keepers_, peer);
      std::erase(ranks_, peer);
      decide(PeerGone{.peer = peer});
    }
  }

  void watch_children() {
    if (present_) {
      if (const std::optional<ChildEnd> end = present_->child->poll()) {
        const std::int64_t ended = incarnation_;
        remove_scratch(env_, present_->scratch);
        take_output(*present_);
        present_.reset();
        hear();  // its last words
        if (incarnation_ == ended) decide(LauncherEnded{.signal = end->signal, .code = end->code});
      }
    }
    std::erase_if(ending_, [&](Launcher& launcher) {
      if (env_.now().count >= launcher.force_at.count) launcher.child->signal_group(SIGKILL);
      if (!launcher.child->poll()) return false;
      take_output(launcher);
      remove_scratch(env_, launcher.scratch);
      return true;
    });
    std::vector<Probed> probed;
    std::erase_if(probes_, [&](const auto& probe) {
      if (env_.now().count >= probe.force_at.count) probe.child->signal_group(SIGKILL);
      const std::optional<ChildEnd> end = probe.child->poll();
      if (end) probed.push_back({.host = probe.host, .ok = end->signal == 0 && end->code == 0});
      return end.has_value();
    });
    for (const Probed& one : probed) decide(one);
  }

  // Of a start that did not get on, where nothing else tells it.
  void tell_launcher_said() {
    if (!said_.empty()) log_.warning("supervisor: the launcher of a start that did not get on has said:\n{}", said_);
    said_.clear();
  }

  void take_output(Launcher& launcher) {
    if (launcher.output) said_ = launcher.output->end();
    launcher.output.reset();
  }

  void watch_signals() {
    const StopCounts counts = stop_counts();
    for (; seen_.preempted < counts.preempted; ++seen_.preempted) decide(StopAsked{.preempted = true});
    for (; seen_.user < counts.user; ++seen_.user) decide(StopAsked{.preempted = false});
    if (std::exchange(seen_.suspended, counts.suspended) == counts.suspended) return;
    for (PeerId peer : keepers_) server_.send(peer, telemetry::Suspend{});
    suspend_this_process();
  }

  // Of the decider: it does not count what this process was stopped for.
  Seconds now() {
    const Seconds real = env_.now();
    const double gap = real.count - std::exchange(looked_at_clock_, real).count;
    if (gap > kStopped_s) {
      stopped_s_ += gap;
      not_counted_s_ += gap;
    }
    return {real.count - not_counted_s_};
  }

  void watch_stop_file() {
    const std::string stop_file = stop_file_of(options_.out);
    const bool there = env_.exists(stop_file);
    if (!there) stop_file_stays_ = false;
    if (!there || stop_file_stays_) return;
    try {
      env_.is_directory(stop_file) ? env_.remove_directory(stop_file) : env_.remove_file(stop_file);
    } catch (const Error& error) {  // it asks all the same, once
      stop_file_stays_ = true;
      log_.warning("supervisor: {} cannot be removed, which the next start will ask for: {}", stop_file, error.what());
    }
    log_.info("supervisor: {} asks to stop", stop_file);
    decide(StopAsked{.preempted = true});
  }

  void watch_hosts_file() {
    if (options_.hosts_file.empty()) return;
    std::string text;
    try {
      text = env_.read_file(options_.hosts_file);
    } catch (const Error&) {
      return;  // on its way to be replaced
    }
    if (text == hosts_text_) return;
    hosts_text_ = std::move(text);
    const Result<std::vector<Host>> hosts = parse_hosts(hosts_text_, options_.hosts_file);
    if (!hosts) {
      log_.warning("supervisor: {}; the hosts stay as they were", hosts.failure().sentence());
      return;
    }
    decide(HostsListed{.hosts = *hosts});
  }

  void decide(const Event& event) {
    if (finish_) return;
    for (const Action& action : decider_.decide(event, now())) {
      std::visit([&](const auto& one) { act(one); }, action);
    }
  }

  // ---- Actions.

  void act(const Launch& launch) {
    WorkerStart start;
    start.layout = launch.layout;
    start.placement = launch.placement;
    start.incarnation = incarnation_ = lease_.begin_incarnation(options_.least_incarnation, &patient_);
    server_.begin_incarnation(incarnation_);
    keepers_.clear();
    ranks_.clear();
    start.address = server_.address();
    start.secret = secret_;
    start.run_elapsed_s = lease_.run_elapsed_s();
    start.begun = begun_;
    start.again = std::exchange(started_, true);
    if (launch.layout == measured_layout_) start.gemm_flops_per_s = gemm_flops_per_s_;
    measured_layout_ = launch.layout;
    start.scratch = join_path(patient_.real_path(options_.out), fmt::format("{}{}", kScratch, incarnation_));
    patient_.make_directories(start.scratch);
    tell_launcher_said();
    present_ = Launcher{.child = start_child(options_.command(start)), .output = nullptr, .scratch = start.scratch};
    const int output = present_->child->take_output();
    if (output >= 0) present_->output = std::make_unique<CapturedOutput>(output);
  }
  void act(const SendAll& send) {
    for (PeerId peer : send.keepers ? keepers_ : ranks_) server_.send(peer, send.message);
  }
  void act(const EndLauncher&) {
    if (!present_) return;
    present_->force_at = {env_.now().count + kLauncherEnd_s};
    ending_.push_back(std::move(*present_));
    present_.reset();
  }
  void act(const Probe& probe) {
    if (!options_.probe) return decide(Probed{.host = probe.host, .ok = true});
    probes_.push_back({.host = probe.host,
                       .child = start_child(options_.probe(probe.host)),
                       .force_at = {env_.now().count + kProbeWithin_s}});
  }
  void act(const Write& write) {
    std::visit([&](auto line) { append(line); }, write.line);
  }
  void append(Incident incident) {
    incident.incarnation = incarnation_;
    incident.wall_time = env_.wall_time();
    if (!failed_incarnation_) failed_incarnation_ = incarnation_;
    lines_.push_back(to_json(incident).dump());
    write_lines();
    tell_in_rank_logs(incident);
  }
  // Who was killed wrote nothing. Rank 0's log has all of it.
  void tell_in_rank_logs(const Incident& incident) {
    std::set<int> ranks(incident.ranks.begin(), incident.ranks.end());
    ranks.insert(0);
    for (int rank : ranks) {
      const std::string path = telemetry::rank_log_of(options_.out, rank);
      try {
        env_.make_directories(directory_name(path));
        FileLog log(env_);
        log.open(path);
        log.warning("supervisor: {}: {}; {}", failure_name(incident.kind), incident.message, incident.action);
      } catch (const Error& error) {  // the run can do without
        log_.warning("supervisor: rank {} has no log file: {}", rank, error.what());
      }
    }
  }
  void append(Recovery recovery) {
    recovery.incarnation = incarnation_;
    recovery.of_incarnation = std::exchange(failed_incarnation_, std::nullopt).value_or(incarnation_ - 1);
    recovery.wall_time = env_.wall_time();
    lines_.push_back(to_json(recovery).dump());
    write_lines();
  }
  // In their order; those that cannot be written now are tried again with each renewal.
  void write_lines() {
    try {
      for (; !lines_.empty(); lines_.pop_front()) {
        append_incident(env_, options_.out, parse_json(lines_.front(), "an incident").or_throw());
      }
    } catch (const Error& error) {
      if (!std::exchange(told_lines_, true)) {
        log_.warning("supervisor: {}; what happened is written down once that is possible", error.what());
      }
      return;
    }
    told_lines_ = false;
  }
  void act(const Say& say) {
    say.warning ? log_.warning("supervisor: {}", say.text) : log_.info("supervisor: {}", say.text);
  }
  void act(const Finish& finish) { finish_ = finish; }

  // No process that this one started is left.
  void end_all() {
    if (present_) act(EndLauncher{});
    const double until = env_.now().count + kLauncherEnd_s + 1;
    while (!ending_.empty() && env_.now().count < until) {
      std::vector<Waited> waited;
      for (const Launcher* launcher : launchers()) waited.push_back({.descriptor = launcher->child->descriptor()});
      wait_for_any(waited, Seconds{kTurn_s});
      server_.work();
      watch_children();
    }
  }

  Env& env_;
  Log& log_;
  checkpoint::Lease& lease_;
  Decider& decider_;
  const ShellOptions& options_;
  const std::string secret_;
  PatientEnv patient_;  // for what a start needs: nobody has to be heard meanwhile
  ControlServer server_;
  std::string hosts_text_;
  std::int64_t incarnation_ = 0;
  std::optional<std::int64_t> failed_incarnation_;  // whose failure has no recovery yet
  double gemm_flops_per_s_ = 0;                     // as the present layout's leader has measured
  plan::Layout measured_layout_;
  bool begun_ = false;
  bool started_ = false;
  std::string said_;              // by the last launcher that ended, if no rank of it has got on
  bool stop_file_stays_ = false;  // it has been heard, and cannot be removed
  std::optional<Launcher> present_;
  std::vector<Launcher> ending_;
  std::vector<RunningProbe> probes_;
  std::vector<PeerId> keepers_, ranks_;
  StopCounts seen_;
  Seconds looked_at_clock_;
  double stopped_s_ = 0;      // that has not been told yet
  double not_counted_s_ = 0;  // of all stops
  Seconds renewed_;
  bool away_ = false;              // the run directory is
  std::deque<std::string> lines_;  // of incidents.jsonl, that are not there yet
  bool told_lines_ = false;
  Seconds looked_;  // at files
  std::optional<Finish> finish_;
};

}  // namespace

std::string stop_file_of(const std::string& out) { return join_path(out, "stop"); }

ShellOutcome supervise(Env& env, Log& log, checkpoint::Lease& lease, Decider& decider, const ShellOptions& options) {
  return Shell(env, log, lease, decider, options).run();
}

}  // namespace trireme::supervisor
