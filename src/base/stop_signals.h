#pragma once

// Ctrl-C and its kin, turned into a question that long work asks between its steps.

namespace trireme {

// SIGINT, SIGTERM, SIGHUP, SIGUSR1, for a process that stops by itself: the first signal says on standard error what
// happens now; a second one ends the process at once, as if none had been caught. Installs the handlers for the whole
// process. `notice` must live for ever (a literal).
void catch_stop_signals(const char* notice);
bool stop_requested();

// For a process that decides what a signal means: counts, and does nothing else.
struct StopCounts {
  int preempted = 0;  // SIGTERM, SIGUSR1
  int user = 0;       // SIGINT, SIGHUP
};
void catch_supervisor_signals();
StopCounts stop_counts();

// For a process whose end is another's to decide: a launcher passes signals on to all that it has started.
void ignore_stop_signals();

// A pipe whose reader is gone is an error of the write, not the end of the process.
void ignore_broken_pipes();

}  // namespace trireme
