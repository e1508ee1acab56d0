#include "base/limit_failure.h"

#include <new>
#include <system_error>

namespace trireme {

std::string limit_failure(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) {
    return "out of memory: the host has no more, or the limit on address space (ulimit -v) is reached";
  }
  const auto* system = dynamic_cast<const std::system_error*>(&error);
  if (system == nullptr) return "";
  const std::error_code code = system->code();
  if (code == std::errc::resource_unavailable_try_again || code == std::errc::not_enough_memory) {
    return "no thread or process can be started: the limit on processes (ulimit -u) or on address space (ulimit -v) is "
           "reached";
  }
  if (code == std::errc::too_many_files_open) return "too many open files: raise the limit on them (ulimit -n)";
  return "";
}

}  // namespace trireme
