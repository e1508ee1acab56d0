// A cluster.toml of any bytes: a Cluster, or a refusal with a sentence. What is accepted is written as a text that
// reads back as the same cluster.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/json.h"
#include "cluster/cluster.h"

namespace trireme::cluster {
namespace {

void fuzz(std::string_view text) {
  const Result<Json> document = parse_toml(text, "cluster.toml");
  if (!document) {
    TRIREME_CHECK(!document.failure().sentence().empty(), "a refusal without words");
    return;
  }
  const Result<Cluster> cluster = parse_cluster(*document, "cluster.toml");
  if (!cluster) {
    TRIREME_CHECK(!cluster.failure().sentence().empty(), "a refusal without words");
    return;
  }
  const std::string written = to_toml(*cluster);
  const Cluster again = parse_cluster(parse_toml(written, "written").or_throw(), "written").or_throw();
  // Every figure is written exactly, so the same text is the same cluster.
  TRIREME_CHECK(to_toml(again) == written, "{} reads back as another cluster", written);
  const Result<Cluster> larger = with_devices(*cluster, 2 * cluster->devices());
  if (larger) TRIREME_CHECK(larger->devices() == 2 * cluster->devices(), "{}", larger->devices());
}

}  // namespace
}  // namespace trireme::cluster

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  trireme::cluster::fuzz({reinterpret_cast<const char*>(data), size});
  return 0;
}
