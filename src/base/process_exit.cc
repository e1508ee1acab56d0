#include "base/process_exit.h"

#include <unistd.h>

namespace trireme {

void end_process_at_once(int exit_code) { ::_exit(exit_code); }

}  // namespace trireme
