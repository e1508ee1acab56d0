#pragma once

// The flags that the sums about a model share: which model, cluster, batch, types, framework, and what of the layout is
// given. Each is read once, refused by name.

#include <optional>
#include <string>
#include <utility>

#include "base/env.h"
#include "cli/arguments.h"
#include "planner/search.h"

namespace trireme::cli {

// A config.json (positional), or a hypothetical model by its sizes. Sizes beside a config.json may say what it says.
struct ModelFlags {
  std::string path, family, layers, hidden, heads, kv_heads, head_dim, ffn, vocabulary, positions;
  bool tied = false;

  void declare(Command& command);
  bool given() const { return !path.empty() || !given_size().empty(); }
  // The first flag of a model by sizes that was given: name and value; empty where none was.
  std::pair<std::string, std::string> given_size_flag() const;
  std::string given_size() const { return given_size_flag().first; }
  // Positions follow `sequence`, the text of --sequence, where no size says how many; rotary positions are as many
  // as it asks for, with a note.
  model::Config read(Env& env, const std::string& sequence) const;

 private:
  model::Config from_sizes(const std::string& sequence) const;
  void check_agreement(const model::Config& config) const;
};

struct RunFlags {
  std::string cluster, devices, batch, sequence, precision = "bf16", framework = "trireme", calibration;
  bool fp32_gradients = false;

  void declare(Command& command);
  DType compute() const;
  planner::Calibration read_calibration(Env& env) const;
  // The cluster, with --devices where given.
  cluster::Cluster read_cluster(Env& env) const;
  std::int64_t read_sequence(const model::Config& config) const;
  planner::Problem problem(Env& env, const model::Config& config, const cluster::Cluster& on) const;
};

// --tp, --pp, ...: each optional.
struct LayoutFlags {
  std::string tp, pp, dp, interleave, zero, micro_batch, schedule, recompute, sequence_parallel, order;
  bool allow_slow_tp = false;

  void declare(Command& command);
  planner::Wanted read() const;
  // The first that was given, as "--tp" and its value; empty where none was.
  std::pair<std::string, std::string> given_flag() const;

 private:
  std::vector<std::pair<std::string, std::string>> values() const;  // by name, empty where not given
};
// "tp=16,pp=4": the same names.
planner::Wanted parse_wanted(const std::string& flag, const std::string& text);

// A layout's refusal under the names of the flags.
Failure with_flags(Failure failure);
// Ends the command with it.
[[noreturn]] void refuse_layout(Failure failure);

// "405,853,388,800 parameters, 126 layers, hidden 16384".
std::string model_line(const model::Config& config);
std::string cluster_line(const cluster::Cluster& cluster);

}  // namespace trireme::cli
