#pragma once

// The keys of cluster.toml, one row each: what parse_cluster reads and to_toml writes.

#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "cluster/cluster.h"

namespace trireme::cluster {

// The largest number of hosts, of devices and of cards, and of devices in all.
inline constexpr std::int64_t kMaximumCount = std::int64_t{1} << 24;

struct Key {
  std::string name;  // "links.inside.bandwidth"
  bool required = true;
  std::function<Status(Cluster&, const Json&)> set;  // the Failure's option is the key's name
  std::function<Json(const Cluster&)> get;           // null where it is not given
};
const std::vector<Key>& keys();

}  // namespace trireme::cluster
