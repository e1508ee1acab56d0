#pragma once

// How often a run on a cluster fails, from the key `checkpoint.cluster` of run.toml.

#include <cstdint>
#include <string>

#include "base/env.h"
#include "base/error.h"
#include "base/units.h"
#include "cluster/cluster.h"

namespace trireme::cli {

// text: a preset's name or the path of a cluster.toml, as `trireme plan --cluster` takes it. Refused: what
// cluster::load_cluster refuses.
Result<cluster::Cluster> load_run_cluster(Env& env, const std::string& text);
// devices: those of the run, one a rank, all of which it needs; how many the cluster itself has does not matter.
// Refused: a cluster without device.mtbf; text names it.
Result<Seconds> cluster_mtbf(const cluster::Cluster& cluster, const std::string& text, std::int64_t devices);

}  // namespace trireme::cli
