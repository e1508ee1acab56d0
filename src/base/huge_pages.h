#pragma once

// Memory in pages of 2 MiB: fewer misses where matrices are read by columns, fewer interrupts where memory is new.

#include "base/units.h"

namespace trireme {

inline constexpr Bytes kHugePage{2 << 20};

// Asks the system to use huge pages for the whole ones within [data, data + bytes), which it may or may not do. data is
// aligned to one. Before the memory is first written.
void prefer_huge_pages(void* data, Bytes bytes);

}  // namespace trireme
