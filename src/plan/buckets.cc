#include "plan/buckets.h"

namespace trireme::plan {

std::vector<Bucket> gradient_buckets(const std::vector<ShardUnit>& units, const Layout& layout) {
  std::vector<Bucket> buckets;
  bool open = false;
  for (int index = static_cast<int>(units.size()) - 1; index >= 0; --index) {
    if (!open) buckets.push_back({.first = index + 1, .end = index + 1});
    Bucket& bucket = buckets.back();
    bucket.first = index;
    bucket.elements += units[static_cast<std::size_t>(index)].elements;
    open = bucket.elements < layout.bucket;
  }
  return buckets;
}

}  // namespace trireme::plan
