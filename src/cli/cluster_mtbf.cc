#include "cli/cluster_mtbf.h"

#include "cluster/cluster.h"
#include "planner/fleet.h"

namespace trireme::cli {
namespace {

constexpr const char* kOption = "checkpoint.cluster";

}  // namespace

Result<Seconds> cluster_mtbf(Env& env, const std::string& cluster, std::int64_t devices) {
  const Result<cluster::Cluster> loaded = cluster::load_cluster(env, cluster);
  if (!loaded.ok()) {
    Failure failure = loaded.failure();
    // Of the words of the key; what is wrong inside a file keeps the file's name.
    if (failure.option == "cluster" || failure.option == "devices") failure.option = kOption;
    return failure;
  }
  if (loaded->device_mtbf.count <= 0) {
    return Failure{.option = kOption,
                   .value = cluster,
                   .rule = "does not say how often a device fails",
                   .nearest = "add device.mtbf to it, e.g. mtbf = \"3y\", or name a preset"};
  }
  return planner::job_mtbf(loaded->device_mtbf, devices);
}

}  // namespace trireme::cli
