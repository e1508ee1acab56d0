#pragma once

// The end of this process as a crash would bring it: at once, with no destructor, no flush and no word to anybody. For
// planned faults, and for a worker whose supervisor is gone; everything else throws Error.

namespace trireme {

[[noreturn]] void end_process_at_once(int exit_code);

}  // namespace trireme
