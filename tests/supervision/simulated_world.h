#pragma once

// A run's outside world, simulated: hosts, a network, a launcher, keepers and ranks that load, step and save. Time is a
// number; all that is random comes of the scenario's seed. It knows the truth that a supervisor must find out.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <set>
#include <string>
#include <vector>

#include "supervisor/decider.h"

namespace trireme::supervisor {

// The same numbers for a seed on every machine.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : seed_(seed) {}
  double between(double low, double high);
  int below(int count);
  bool chance(double probability) { return between(0, 1) < probability; }

 private:
  std::uint64_t seed_;
  std::uint64_t drawn_ = 0;
};

enum class Trouble {
  kKillRank,
  kKillKeeper,
  kKillBoth,
  kStopRank,   // SIGSTOP: it says nothing any more
  kStickRank,  // it gets no further, and says so
  kSlowHost,
  kLoseHost,
  kCutHost,  // from the network
  kCutUp,    // what it says is lost
  kCutDown,  // what it is told is lost
  kDropConnection,
  kUnlistHost,
  kListHost,  // one more
  kFullDisk,  // saves fail
  kNan,       // in the next step
  kBadStarts,
  kLateEnd,   // of the launcher, the next time
  kWrongEnd,  // its code, the next time
  kLoseSupervisor,
  kPreempt,
  kInterrupt,
};
struct PlantedTrouble {
  Trouble kind = Trouble::kKillRank;
  double at = 0;
  int where = 0;         // rank or host, of those there are
  double lasting = 1e9;  // seconds, where it passes
};

struct Scenario {
  std::uint64_t seed = 0;
  std::string name;
  std::vector<Host> hosts;
  bool local = false;  // one host, the supervisor's own
  int ranks = 1;       // as asked for
  bool reshapes = true;
  std::int64_t global_batch = 8;
  std::int64_t steps = 20, save_every = 5;
  double step_s = 1;
  std::int64_t crash_step = 0, nan_step = 0;  // always, there
  bool victims_speak = true;                  // ranks whose peer is lost say so
  bool dies_with_keeper = true;
  double comm_deadline_s = 60;  // after which a waiting rank ends
  double fence_s = telemetry::kFence_s;
  bool saves_when_stopped = true;
  Policy policy;
  std::vector<PlantedTrouble> troubles;
  std::set<ExitCode> ends;  // that are right for what is planted

  std::optional<ReshapeChoice> choose(const std::vector<Host>& available) const;
};

// What has gone wrong in the present incarnation and is not yet acted upon.
struct OpenTrouble {
  Trouble kind = Trouble::kKillRank;
  double at = 0;
  std::set<int> ranks;  // at fault
  std::string host;
  bool quick = false;  // to be seen at once, not by patience
};

class SimulatedWorld {
 public:
  explicit SimulatedWorld(const Scenario& scenario);

  // To the supervisor; it may call the members below meanwhile.
  std::function<void(const Event&)> tell;
  std::function<void()> lose_supervisor;  // and begin another after a while
  std::function<void(std::string)> note;  // what happens, for people

  double now() const { return now_; }
  void pass_to(double time) { now_ = time; }
  double next_event() const { return events_.empty() ? 1e18 : events_.top().at; }
  void run_next();
  void after(double seconds, std::function<void()> what);

  // What a supervisor does.
  void launch(const Launch& launch);
  void send_all(const SendAll& send);
  void end_launcher();
  void probe(const std::string& host);
  void supervisor_gone();

  // The truth.
  const std::vector<Host>& listed() const { return listed_; }
  std::int64_t durable() const { return durable_; }
  std::int64_t completed() const { return work_.completed; }  // in the present incarnation
  int writers() const;  // rank processes that were let in and can still write
  const std::vector<OpenTrouble>& open() const { return open_; }
  int troubles_of_start() const { return troubles_of_start_; }
  bool was_ever_bad(const std::string& host) const { return bad_hosts_.contains(host); }
  bool unstable() const { return unstable_; }  // of this incarnation: something else than planted troubles may fail it

 private:
  struct Process {
    int incarnation = 0, rank = 0, host = 0, partner = -1;
    bool keeper = false, alive = true, stopped = false, stuck = false;
    bool connected = false, accepted = false, ended_in_word = false, told_to_stop = false;
    double last_heard = 0, last_up = 0, last_down = 0;
    std::vector<telemetry::Message> held_up, held_down;
    bool held_close = false;
    telemetry::RankProgress progress;
  };
  struct SimulatedHost {
    std::string name;
    bool up = true;
    int cut_up = 0, cut_down = 0;
    double slowness = 1;
    bool reachable() const { return up && cut_up == 0 && cut_down == 0; }
  };
  struct Launcher {
    bool running = false, aborting = false, late = false;
    int code = 0, waiting_for = 0;  // keepers
  };
  struct Work {
    std::vector<int> ranks;  // processes, by rank; -1: not yet there
    bool joined = false, loaded = false, ending = false;
    std::int64_t completed = 0;
    int arrived = 0;
  };
  struct Entry {
    double at;
    std::uint64_t order;
    std::function<void()> what;
    bool operator<(const Entry& other) const { return at != other.at ? at > other.at : order > other.order; }
  };

  double delay();
  int host_index(const std::string& name);
  SimulatedHost& host_of(const Process& process) { return hosts_[static_cast<std::size_t>(process.host)]; }
  Process& process(int id) { return processes_[static_cast<std::size_t>(id)]; }
  bool works(int id);
  void within_start(double seconds, std::function<void()> what);  // unless another start has begun

  // Network.
  void say(int id, const telemetry::Message& message);
  void arrive(int id, std::optional<telemetry::Message> message);
  void received(int id, const std::optional<telemetry::Message>& message);
  void hand_down(int id, const telemetry::Message& message);
  void hears(int id, const telemetry::Message& message);
  void cut(int host, bool up, bool down, double lasting);
  void heal(int host, bool up, bool down);

  // Processes.
  void start_host(int host, std::vector<int> ranks);
  int spawn(int rank, int host, bool keeper);
  void connect(int id);
  void beat(int id);
  void watch_fence(int id);
  void end_process(int id, int signal, int code);
  void end_by_keeper(int keeper);
  void supervisor_is_gone_for(int id);
  void keeper_ended(int id, bool badly);
  void abort_launch(int code);
  void end_of_launcher_if_due();

  // Work.
  void fail_rank(int id, int code, const std::string& text);
  void peer_lost();
  void join_if_all_there();
  void load();
  void begin_step();
  void compute(int id, std::int64_t step, int part);
  void finish_step();
  void save(std::int64_t step);
  void end_in_order(bool interrupted);
  void at_phase(int id, telemetry::Phase phase, std::int64_t step);
  void answer_with_records(int id);

  // Troubles.
  void plant(const PlantedTrouble& trouble);
  void plant_process_trouble(const PlantedTrouble& trouble);
  void plant_host_trouble(const PlantedTrouble& trouble);
  void lose_host(int host, double lasting);
  void list_hosts(std::vector<Host> hosts);
  void opened(OpenTrouble trouble);

  const Scenario& scenario_;
  Dice dice_;
  double now_ = 0;
  std::uint64_t order_ = 0;
  std::priority_queue<Entry> events_;
  std::vector<SimulatedHost> hosts_;
  std::vector<Host> listed_;
  std::vector<Process> processes_;
  int incarnation_ = 0;  // of the start at hand
  bool served_ = true;   // somebody lets its workers in
  std::optional<Launch> launch_;
  Launcher launcher_;
  Work work_;
  std::int64_t durable_ = 0;
  double disk_full_until_ = 0, bad_starts_until_ = 0;
  bool nan_next_ = false, late_end_ = false, wrong_end_ = false;
  std::vector<OpenTrouble> open_;
  int troubles_of_start_ = 0;
  bool unstable_ = false;
  std::set<std::string> bad_hosts_;
};

}  // namespace trireme::supervisor
