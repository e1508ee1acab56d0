#pragma once

// Ctrl-C and its kin, turned into a question that long work asks between its steps. Those by which schedulers announce
// an end: SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU (a limit of processor time), SIGPWR; and the user's: SIGINT, SIGQUIT,
// SIGHUP, but for one that was started to outlive its terminal (nohup: SIGHUP stays ignored).

#include <cstdint>

namespace trireme {

std::uint64_t stop_signal_mask();  // of all of them, as the kernel has it

// From now on a stop signal waits until one of the functions below has said what becomes of it. Calls nothing but the
// system: it may run before main.
void hold_stop_signals();
// They do what the system has them do: end this process.
void release_stop_signals();

// For a process that stops by itself: the first signal says on standard error what happens now; a second one, a second
// or more later, ends the process at once, as if none had been caught. No thread that computes may run a handler: the
// library's products keep no stack pointer, and what the system puts there for a handler falls on the heap. So signals
// wait in this thread and all that it starts from now on, and a thread of their own takes them. `notice` must live for
// ever (a literal).
void catch_stop_signals(const char* notice);
bool stop_requested();

// For a process that decides what a signal means, or tells one that does: counts, and does nothing else.
struct StopCounts {
  int preempted = 0;  // by a scheduler
  int user = 0;
  int suspended = 0;  // Ctrl-Z, where catch_suspension() has been asked for
};
void catch_supervisor_signals();
void catch_suspension();
StopCounts stop_counts();

// For a process whose end is another's to decide.
void ignore_stop_signals();

// Stops this process as Ctrl-Z does; returns once it has been told to go on (SIGCONT).
void suspend_this_process();

// A pipe whose reader is gone is an error of the write, not the end of the process.
void ignore_broken_pipes();
// A write beyond the limit on the size of files (ulimit -f) fails then instead of ending the process. Inherited by what
// it starts.
void ignore_file_size_signals();

}  // namespace trireme
