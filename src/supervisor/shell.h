#pragma once

// The doing part of a supervisor: starts workers, listens to them, and does what the Decider says. One thread.

#include <functional>
#include <string>
#include <vector>

#include "base/child.h"
#include "base/env.h"
#include "base/log.h"
#include "checkpoint/lease.h"
#include "supervisor/control_server.h"
#include "supervisor/decider.h"

namespace trireme::supervisor {

// What the command of a start depends on.
struct WorkerStart {
  plan::Layout layout;
  Placement placement;
  std::int64_t incarnation = 0;
  std::string address, secret;
  double run_elapsed_s = 0;     // that the run was supervised for before
  double gemm_flops_per_s = 0;  // what this layout's leader has measured before; 0: nothing yet
  bool again = false;           // not the first start that this supervisor makes
  bool begun = false;           // the run directory is this run's by now: what was asked for its beginning is done
  std::string scratch;          // a directory for what the launcher leaves; removed after its end
};

struct ShellOptions {
  std::string out;
  std::vector<Host> hosts;
  std::string hosts_file;  // read again when it changes; "": the hosts stay as they are
  std::function<std::unique_ptr<Listener>()> listen;
  std::function<ChildCommand(const WorkerStart&)> command;
  std::function<ChildCommand(const std::string& host)> probe;  // null: a host that is listed is there
  std::int64_t least_incarnation = 0;                          // what checkpoints and metrics have had
  std::function<void(Seconds)> each_turn;                      // may be null: tests
};

struct ShellOutcome {
  Finish finish;
  Summary summary;
  std::string launcher_said;  // of a run that never began: what its launcher has written
};

// A file of this name in the run directory asks for a stop in order, as SIGTERM does; it is removed once it has.
std::string stop_file_of(const std::string& out);

// Until the decider has finished; no process that it started is left then. Asks for a stop when the process gets
// a stop signal (base/stop_signals.h), or the stop file is there. Where the user suspends it (Ctrl-Z) its workers stand
// still until it goes on. Errors: of its own files, of programs that cannot be started.
ShellOutcome supervise(Env& env, Log& log, checkpoint::Lease& lease, Decider& decider, const ShellOptions& options);

}  // namespace trireme::supervisor
