#include "base/descriptor.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace trireme {

void Descriptor::close() {
  if (number_ >= 0) ::close(std::exchange(number_, -1));
}

void fill_standard_descriptors() {
  for (int number = STDIN_FILENO; number <= STDERR_FILENO; ++number) {
    if (::fcntl(number, F_GETFD) >= 0 || errno != EBADF) continue;
    const int flags = number == STDOUT_FILENO ? O_RDONLY : O_RDWR;
    // The lowest number that is free is this one. Where there is no /dev/null, a directory takes the place.
    if (::open("/dev/null", flags) < 0) (void)::open("/", O_RDONLY | O_DIRECTORY);
  }
}

}  // namespace trireme
