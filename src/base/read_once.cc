#include "base/read_once.h"

namespace trireme {

bool is_read_once(Env& env, const std::string& path) {
  if (!env.exists(path) || env.is_directory(path)) return false;
  // The system gives no size for what is no file of a disk.
  return path.starts_with("/dev/") || path.starts_with("/proc/") || env.file_size(path) == 0;
}

}  // namespace trireme
