#pragma once

// How often a run on a cluster fails, from the key `checkpoint.cluster` of run.toml.

#include <cstdint>
#include <string>

#include "base/env.h"
#include "base/error.h"
#include "base/units.h"

namespace trireme::cli {

// cluster: a preset's name or the path of a cluster.toml, as `trireme plan --cluster` takes it. devices: those of the
// run, one a rank, all of which it needs; how many the cluster itself has does not matter. Refused: what
// cluster::load_cluster refuses, and a cluster without device.mtbf.
Result<Seconds> cluster_mtbf(Env& env, const std::string& cluster, std::int64_t devices);

}  // namespace trireme::cli
