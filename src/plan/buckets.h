#pragma once

// Buckets of gradients: whole shard units that are reduced over the data axis together, as one contiguous run of the
// rank's gradient buffer. Which units share a bucket changes messages, never bits of the
// ordered sum: every element's is over ranks. (A ring's order depends on the share, and so on the bucket.)

#include <cstdint>
#include <vector>

#include "plan/layout.h"
#include "plan/slices.h"

namespace trireme::plan {

struct Bucket {
  int first = 0;  // shard units [first, end) of the rank
  int end = 0;
  std::int64_t elements = 0;  // padding included
};

// All shard units, in the order in which backward completes the buckets: from the last unit on, a bucket is closed as
// soon as it holds layout.bucket elements (0: each unit is one).
std::vector<Bucket> gradient_buckets(const std::vector<ShardUnit>& units, const Layout& layout);

}  // namespace trireme::plan
