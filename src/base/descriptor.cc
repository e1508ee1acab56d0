#include "base/descriptor.h"

#include <unistd.h>

namespace trireme {

void Descriptor::close() {
  if (number_ >= 0) ::close(std::exchange(number_, -1));
}

}  // namespace trireme
