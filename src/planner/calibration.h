#pragma once

// What no arithmetic gives: how near to its peaks a device comes, and what a training framework keeps, hides and
// wastes. A handful of constants per device and per framework, from a file with its own schema
// (docs/formats/calibration.md); the defaults are examples/calibrations/default.toml, compiled in.

#include <map>
#include <string>
#include <string_view>

#include "base/env.h"
#include "base/error.h"
#include "base/json.h"
#include "base/units.h"
#include "planner/collectives.h"

namespace trireme::planner {

struct DeviceConstants {
  double gemm_efficiency = 0.8;       // of the peak rate, large products
  double gemm_half_extent = 128;      // extent (rows, columns or depth) at which a product reaches half of that
  double attention_efficiency = 0.4;  // of the peak rate, fused attention
  double memory_efficiency = 0.8;     // of the memory's peak
  Seconds kernel_launch{5e-6};        // host time of one kernel
  double inside_efficiency = 0.7;     // of the links' bandwidth, collectives inside a host
  double between_efficiency = 0.8;    // across hosts
};

// Which tensors a framework's layers keep for backward.
//   kTrireme: model/activations.h, the engine's own. kMegatron: Korthikanti et al. 2022, figure 2.
enum class ActivationSet { kTrireme, kMegatron };

struct FrameworkConstants {
  ActivationSet activations = ActivationSet::kTrireme;
  bool fused_attention = true;           // no attention scores in memory
  bool fp32_gradients = false;           // 18 bytes a parameter instead of 16
  bool dropout = false;                  // keeps masks (one byte an element)
  double activation_scale = 1.0;         // kept bytes against the set's: unfused operations keep copies
  double logit_bytes = 4.0;              // at once, per token and vocabulary entry of the rank
  double kernels_per_layer = 20;         // launched in a layer's forward pass
  Bytes context;                         // device context, libraries, communicators
  double fragmentation = 0.0;            // of everything that is not context
  double data_overlap = 0.0;             // part of the data axis' exchange that may hide behind compute
  double tensor_overlap = 0.0;           // the same of the tensor axis
  double pipeline_overlap = 0.0;         // the same of sends between stages
  double step_overhead = 0.0;            // of the step: data loading, logging, gaps between kernels
  std::int64_t vocabulary_multiple = 1;  // the vocabulary is padded to a multiple of this times tp
  bool scattered_sends = false;          // tensor ranks send a part each even without sequence parallelism
  bool resharded_after_forward = true;   // ZeRO 3 gathers again for backward
  CollectiveAlgorithm reduce = CollectiveAlgorithm::kRing;  // of gradients over the data axis
};

struct Calibration {
  std::map<std::string, DeviceConstants> devices;        // by cluster::Device::name; "default" for all others
  std::map<std::string, FrameworkConstants> frameworks;  // "trireme", "megatron", "fsdp", "nanotron", or the user's own

  const DeviceConstants& device(const std::string& name) const;
  Result<FrameworkConstants> framework(const std::string& name) const;
};

// Reads [device.NAME] and [framework.NAME] tables on top of `base`: keys that a table leaves out keep the base's values
// (a new name starts from "default" or from "trireme"). Unknown keys, wrong types and values outside their range are
// refused by name.
Result<Calibration> parse_calibration(const Json& document, const std::string& what, Calibration base);
const Calibration& default_calibration();
// A document with a device's table, which parse_calibration reads back as the same constants.
std::string to_toml(const std::string& device, const DeviceConstants& constants);
// The default with a file's tables on top; "" gives the default.
Result<Calibration> load_calibration(Env& env, const std::string& path);

}  // namespace trireme::planner
