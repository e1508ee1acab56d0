#pragma once

// What a layer gets to work with. A rank is an object: everything that it may touch is in its RankContext, nothing is
// global, so many ranks run as threads of one process.

#include <array>
#include <cstdint>
#include <span>

#include "base/env.h"
#include "base/log.h"
#include "engine/comm/communicator.h"
#include "engine/kernels/arena.h"
#include "engine/kernels/device.h"
#include "model/activations.h"
#include "model/config.h"
#include "model/parameters.h"

namespace trireme::nn {

struct RankContext {
  Env& env;
  Log& log;
  kernels::Device& device;
  kernels::Arena& arena;            // and with it the ledger
  comm::Communicator& tensor;       // ranks that share the tensors of a layer
  comm::Communicator& pipeline;     // ranks that hold the other stages of this replica
  comm::Communicator& data;         // ranks that hold the same slices of other replicas
  comm::Communicator& kv_replicas;  // of the tensor ranks, those that hold the same key/value heads
  std::uint64_t seed = 0;           // of initialisation, dropout and sample order; the same on every rank
  Seconds wait_deadline{600};       // of every wait on another rank
  int threads = 1;                  // compute threads

  kernels::Kernels& kernels() { return device.kernels(); }
};

// Temporaries of one unit's pass: a slab of known size, of which the unit's program says what lies where. Beyond the
// slab is an InternalError.
class Workspace {
 public:
  Workspace(std::byte* data, Bytes size) : data_(data), size_(size) {}

  kernels::TensorView at(Bytes offset, std::int64_t rows, std::int64_t columns, DType dtype);
  Bytes high_water() const { return high_water_; }  // of what was given out
  void reset_high_water() { high_water_ = {}; }

 private:
  std::byte* data_;
  Bytes size_;
  Bytes high_water_;
};

// The local weights of a unit by role; absent ones are empty views.
struct WeightViews {
  std::array<kernels::ConstTensorView, model::kRoleCount> views;
  const kernels::ConstTensorView& operator[](model::Role role) const { return views[static_cast<std::size_t>(role)]; }
  kernels::ConstTensorView& operator[](model::Role role) { return views[static_cast<std::size_t>(role)]; }
};

// Where weight gradients go. A layer asks for the destination of one tensor's contribution from one micro-batch, writes
// it (over what is there, or adding to it, as told), and says that it is done. What happens then (nothing, a sum over
// ranks, a conversion to fixed point or to bf16) is the sink's business.
class GradientSink {
 public:
  struct Target {
    kernels::TensorView view;  // of the local tensor's shape
    bool accumulate = false;
  };
  virtual ~GradientSink() = default;
  virtual Target open(model::Role role) = 0;
  virtual void close(model::Role role) = 0;
};

// One micro-batch on its way through one unit.
struct UnitContext {
  RankContext& rank;
  const model::Config& config;
  model::LocalWidths widths;  // what this rank holds of it
  int unit = 0;
  DType dtype = DType::kF32;               // of activations
  std::int64_t sequences = 0;              // of the micro-batch
  std::int64_t sequence = 0;               // tokens of each
  std::span<const std::uint64_t> samples;  // global sample numbers, one a sequence: what dropout is keyed by
  bool training = true;                    // false: no dropout
  Workspace& workspace;
  std::span<const std::int32_t> inputs;   // device memory; embedding
  std::span<const std::int32_t> targets;  // device memory; head
  kernels::ConstTensorView rotary;        // [sequence, head_dim]; decoder with rotary positions
  std::int64_t head_begin = 0;            // global index of the first local query head
  std::int64_t vocabulary_begin = 0;      // first vocabulary row of this rank

  std::int64_t tokens() const { return sequences * sequence; }
  // Sequence parallelism: of the residual stream, norms and dropouts this rank holds widths.sequence_tokens rows, from
  // first_row() of the micro-batch's on (token_rows.h).
  bool sequence_parallel() const { return widths.sequence_tokens != widths.tokens; }
  std::int64_t first_row() const { return sequence_parallel() ? rank.tensor.index() * widths.sequence_tokens : 0; }
  kernels::Kernels& kernels() const { return rank.kernels(); }
};

}  // namespace trireme::nn
