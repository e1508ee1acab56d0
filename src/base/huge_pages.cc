#include "base/huge_pages.h"

#include <sys/mman.h>

#include <cstddef>

namespace trireme {

void prefer_huge_pages(void* data, Bytes bytes) {
#ifdef MADV_HUGEPAGE
  const std::int64_t whole = bytes.count / kHugePage.count * kHugePage.count;
  (void)madvise(data, static_cast<std::size_t>(whole), MADV_HUGEPAGE);
#else
  (void)data, (void)bytes;
#endif
}

}  // namespace trireme
