#include "cli/cluster_mtbf.h"

#include "planner/fleet.h"

namespace trireme::cli {
namespace {

constexpr const char* kOption = "checkpoint.cluster";

}  // namespace

Result<cluster::Cluster> load_run_cluster(Env& env, const std::string& text) {
  Result<cluster::Cluster> loaded = cluster::load_cluster(env, text);
  if (loaded.ok()) return loaded;
  Failure failure = loaded.failure();
  // Of the words of the key; what is wrong inside a file keeps the file's name.
  if (failure.option == "cluster" || failure.option == "devices") failure.option = kOption;
  return failure;
}

Result<Seconds> cluster_mtbf(const cluster::Cluster& cluster, const std::string& text, std::int64_t devices) {
  if (cluster.device_mtbf.count <= 0) {
    return Failure{.option = kOption,
                   .value = text,
                   .rule = "does not say how often a device fails",
                   .nearest = "add device.mtbf to it, e.g. mtbf = \"3y\", or name a preset"};
  }
  return planner::job_mtbf(cluster.device_mtbf, devices);
}

}  // namespace trireme::cli
