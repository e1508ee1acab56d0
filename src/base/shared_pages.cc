#include "base/shared_pages.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace trireme {

SharedPages::SharedPages(std::size_t bytes) {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    throw Error(ExitCode::kDoesNotFit, "process", "share memory with a child", std::strerror(errno),
                "more memory, or a higher limit on address space (ulimit -v)");
  }
  bytes_ = {static_cast<std::byte*>(memory), bytes};
}

SharedPages::~SharedPages() { ::munmap(bytes_.data(), bytes_.size()); }

}  // namespace trireme
