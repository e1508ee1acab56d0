#pragma once

// What a supervisor does about what it hears: events in, actions out. No clock, no file, no process: it runs the same
// in a simulation (tests/supervision) as in a run (shell.h). Deterministic.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "base/exit_code.h"
#include "base/units.h"
#include "plan/layout.h"
#include "supervisor/hosts.h"
#include "supervisor/incident.h"
#include "supervisor/membership.h"
#include "supervisor/patience.h"
#include "supervisor/reshape.h"
#include "supervisor/straggler.h"
#include "telemetry/control_message.h"

namespace trireme::supervisor {

enum class OnStraggler { kReport, kEvict };

struct Policy {
  int retries = 3;     // starts in a row that bring no new durable checkpoint, before the run ends with 78
  Seconds backoff{1};  // before the second of them in a row; doubles; the first is at once
  Seconds most_backoff{60};
  Seconds grace{30};         // from a request to stop until the workers must have saved
  Seconds lost_after{1.5};   // silence of a host that counts as its loss
  Seconds stopped_after{5};  // silence of a rank's process, while its keeper speaks, that counts as a hang
  Seconds settle{0.5};       // how long a rank's word that another is lost waits for that one's own
  Seconds flight_wait{0.5};  // for flight records
  Seconds end_wait{10};      // from the last rank's end in order to the launcher's
  Seconds one_request{1};    // stop requests that come within it are one: of a scheduler that tells every process
  // How long it is no hang that nobody at all is heard, of connections that are all there: on one machine such
  // processes are stopped, and will go on.
  Seconds all_silent{0};
  MembershipPolicy membership;
  bool saves = true;  // the run writes checkpoints: a stop in order loses nothing
  OnStraggler on_straggler = OnStraggler::kReport;
  PatiencePolicy patience;
  StragglerPolicy straggler;
};

// ---- Events.

struct Begin {
  std::vector<Host> hosts;
  bool supervisor_lost = false;  // the one before this was
};
struct Heard {  // from a connection that has proved itself; the first of each is its Hello
  int peer = 0;
  telemetry::Message message;
};
struct PeerGone {
  int peer = 0;
};
struct LauncherEnded {
  int signal = 0;
  int code = 0;
};  // of the present incarnation
struct HostsListed {
  std::vector<Host> hosts;
};  // anew, other than before
struct Probed {
  std::string host;
  bool ok = false;
};
struct StopAsked {
  bool preempted = true;
};                 // else by the user
struct Rested {};  // the supervisor itself was stopped, in a time that `now` has not counted
struct Tick {};    // time has passed
using Event = std::variant<Begin, Heard, PeerGone, LauncherEnded, HostsListed, Probed, StopAsked, Rested, Tick>;

// ---- Actions, to be done in their order.

struct Launch {  // a new incarnation; the doing part numbers it
  plan::Layout layout;
  Placement placement;
};
struct SendAll {
  telemetry::Message message;
  bool keepers = false;
};                      // to all rank processes, or all keepers
struct EndLauncher {};  // and all that it started here, by force; what it leaves is cleared away
struct Probe {
  std::string host;
};
struct Write {
  std::variant<Incident, Recovery> line;
};  // wall_time and incarnation are the doing part's to fill
struct Say {
  bool warning = false;
  std::string text;
};
struct Finish {
  ExitCode code = ExitCode::kDone;
  std::string text;
  bool never_began = false;  // no rank ever got on: what the launcher has said tells more
};                           // nothing comes after it
using Action = std::variant<Launch, SendAll, EndLauncher, Probe, Write, Say, Finish>;

// ---- What it says of itself at the end.
struct Summary {
  int incidents = 0;
  int launches = 0;
  double useful_s = 0;   // of steps that count
  double elapsed_s = 0;  // since Begin
  std::optional<telemetry::Outcome> outcome;
  double goodput() const { return elapsed_s > 0 ? useful_s / elapsed_s : 0; }
};

class Decider {
 public:
  // choose: the layout for these hosts (choose_layout), nullopt where there is none. Hosts empty at Begin: one that is
  // called `own_host`, without end of slots, whose loss nothing can make good.
  using Choose = std::function<std::optional<ReshapeChoice>(const std::vector<Host>&)>;
  Decider(Policy policy, Choose choose);
  ~Decider();

  // now: never less than before. Each event is taken at once; actions are the reaction.
  std::vector<Action> decide(const Event& event, Seconds now);
  // When it wants a Tick at the latest, if nothing else happens.
  Seconds next_tick() const;
  Summary summary(Seconds now) const;
  // For a picture of where it stands: "running", "ending", ...
  std::string state() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trireme::supervisor
