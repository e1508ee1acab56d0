#pragma once

// A cluster as plain values: what a device computes, holds and costs, how devices of a host and hosts are linked, how
// often they fail. Read from cluster.toml or from a preset; every figure of a preset carries its source.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/env.h"
#include "base/error.h"
#include "base/json.h"
#include "base/units.h"

namespace trireme::cluster {

// One accelerator. Rates are peaks as the vendor gives them, dense (no sparsity), in operations or bytes a second.
struct Device {
  std::string name;  // "H100-SXM-80GB": calibration files speak of devices by this name
  Bytes memory;      // what a program can allocate
  double bf16_flops_per_s = 0;
  double fp32_flops_per_s = 0;
  double memory_bytes_per_s = 0;
  double price_per_hour = 0;  // 0: not given
};

// A link as one device (inside) or one network card (between) sees it, in one direction.
struct Link {
  double bytes_per_s = 0;
  Seconds latency;  // of one hop
};

struct Cluster {
  std::string name;
  Device device;
  int hosts = 1;
  int devices_per_host = 1;  // of one fast domain: where a rack is one NVLink domain, the rack is the host
  Link inside;               // between devices of a host, for each device
  Link between;              // between hosts, for each network card
  int cards_per_host = 1;    // network cards that a host's devices share
  Seconds device_mtbf;  // mean time between failures of one device with its share of host and network; 0: not given
  double storage_bytes_per_s = 0;              // writes of all hosts together; 0: not given
  std::map<std::string, std::string> sources;  // dotted key ("device.memory") -> where the figure comes from

  std::int64_t devices() const { return static_cast<std::int64_t>(hosts) * devices_per_host; }
};

// cluster.toml. Every unknown key, missing size, wrong type, unit or value (zero or negative rates, more cards than
// devices is legal) is refused by name. `what` names the file in refusals. Keys and units: docs/formats/cluster.md.
Result<Cluster> parse_cluster(const Json& document, const std::string& what);
// A TOML document that parse_cluster reads back as the same value.
std::string to_toml(const Cluster& cluster);

// Names of the presets, in a fixed order ("a100-40", "a100-80", "h100", "h200", "b200", "gb200-nvl72", "mi300x").
std::vector<std::string_view> preset_names();
// The text of a preset (the very file of examples/clusters/), or "" if there is none of this name.
std::string_view preset_text(std::string_view name);

// A path of a file, or the name of a preset; a preset may say how many devices: "h100:2048" (whole hosts of them; fewer
// than one host's devices is one smaller host). Refusals name the nearest preset.
Result<Cluster> load_cluster(Env& env, const std::string& path_or_preset);
// The same cluster with this many devices: whole hosts, or one smaller host.
Result<Cluster> with_devices(Cluster cluster, std::int64_t devices);

}  // namespace trireme::cluster
