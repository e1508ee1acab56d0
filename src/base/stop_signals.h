#pragma once

// Ctrl-C and its kin (SIGINT, SIGTERM, SIGHUP), turned into a question that long work asks between its steps. The first
// signal says on standard error what happens now; a second one ends the process at once, as if none had been caught.

namespace trireme {

// Installs the handlers for the whole process. `notice` must live for ever (a literal): printed by the first signal.
void catch_stop_signals(const char* notice);
bool stop_requested();
// A pipe whose reader is gone is an error of the write, not the end of the process.
void ignore_broken_pipes();

}  // namespace trireme
