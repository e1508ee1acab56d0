#pragma once

// The memory of a rank that lives through the run: weights, gradient accumulators, moments by shard unit, token batch,
// loss buffers, workspace. Allocated from the plan's list, so that what exists is what was predicted. Beside it what
// ZeRO has for a while only: whole weights of a unit (gathered), whole gradients of one micro-batch (open).

#include <map>
#include <utility>
#include <vector>

#include "engine/nn/context.h"
#include "engine/nn/unit_runner.h"
#include "engine/parallel/run_plan.h"

namespace trireme::parallel {

// A local tensor inside its shard unit.
struct TensorRef {
  int shard_unit = -1;
  int tensor = -1;
  bool found() const { return shard_unit >= 0; }
};

class RankState {
 public:
  RankState(nn::RankContext& context, const RunPlan& run);

  int shard_unit_count() const { return static_cast<int>(run_.step.shard_units.size()); }
  const plan::ShardUnit& shard_unit(int index) const { return run_.step.shard_units[static_cast<std::size_t>(index)]; }

  // Views of a whole local tensor: two dimensions, a vector as one row. Weights under ZeRO 3: while they are gathered.
  // Gradients: where a micro-batch's contribution goes.
  kernels::TensorView weight(TensorRef ref);
  kernels::TensorView gradient(TensorRef ref, int micro_batch);

  // Parts of flat buffers, as one row. Intervals are in elements of the shard unit's whole flat buffer.
  // The part that this rank updates: its shard under ZeRO >= 1, else all.
  plan::Interval owned(int shard_unit) const;
  // The part that it keeps: its shard under ZeRO 3, else all.
  plan::Interval kept(int shard_unit) const;
  // Where a tensor lies in it.
  plan::Interval place_of(TensorRef ref) const;
  kernels::TensorView weights(int shard_unit, plan::Interval part);  // inside kept()
  // What the optimizer updates: the master weights, in a run that has them, else the weights; inside owned() then.
  kernels::TensorView updated_weights(int shard_unit, plan::Interval part);
  bool has_master_weights() const { return plan::has_master_weights(run_.inputs); }
  kernels::TensorView gradients(int shard_unit, plan::Interval part);  // of the accumulators
  kernels::TensorView first_moments(int shard_unit, plan::Interval part);
  kernels::TensorView second_moments(int shard_unit, plan::Interval part);
  // The accumulators of a bucket, padding included: what a reduction over the data axis moves.
  kernels::TensorView bucket_gradients(const plan::Bucket& bucket);

  bool opens_gradients() const { return plan::opens_gradients(run_.layout); }
  // Buffers for a while. The whole flat buffer of a shard unit: of its weights, of one micro-batch's gradients.
  void hold_gathered(int shard_unit, kernels::Buffer buffer);
  void drop_gathered(int shard_unit);
  kernels::TensorView gathered(int shard_unit);
  void hold_gradients(int shard_unit, int micro_batch, kernels::Buffer buffer);
  void drop_gradients(int shard_unit, int micro_batch);
  kernels::TensorView open_gradients(int shard_unit, int micro_batch);

  // Where a unit's tensor of a role has its weight, and where its gradient goes (they differ for a tied head).
  TensorRef weight_ref(int unit, model::Role role) const;
  TensorRef gradient_ref(int unit, model::Role role) const;
  nn::WeightViews weights_of(int unit);

  // Token ids of a micro-batch (device memory) and their host-side loading.
  std::span<const std::int32_t> inputs(int micro_batch, bool evaluation) const;
  std::span<const std::int32_t> targets(int micro_batch, bool evaluation) const;
  void load_tokens(int micro_batch, bool evaluation, std::span<const std::int32_t> inputs,
                   std::span<const std::int32_t> targets);

  // Host memory for checkpoints: plan::checkpoint_staging_bytes().
  std::span<std::byte> checkpoint_staging() {
    return {checkpoint_staging_.data(), static_cast<std::size_t>(checkpoint_staging_.bytes().count)};
  }

  nn::LossBuffers loss_buffers();
  nn::Workspace& workspace() { return workspace_; }
  kernels::ConstTensorView rotary() const { return rotary_; }
  DType dtype() const { return run_.inputs.compute; }

 private:
  DType gradient_dtype() const { return plan::gradient_dtype(run_.inputs); }
  DType state_dtype() const { return plan::state_dtype(run_.inputs); }
  DType dtype_of(plan::StaticKind kind) const;  // of what is of shard units
  bool is_there(TensorRef ref) const;
  struct UnitBuffers {
    kernels::Buffer weights;
    kernels::Buffer master_weights;
    std::int64_t gradients_begin = 0;  // elements, into gradients_
    kernels::Buffer first_moment;
    kernels::Buffer second_moment;
  };
  kernels::Buffer& slot(plan::StaticKind kind, int shard_unit);
  void allocate();
  void carve_workspace();
  // Of the shard unit's flat buffer that begins at `elements` of `buffer`.
  kernels::TensorView local_view(const kernels::Buffer& buffer, DType dtype, std::int64_t elements,
                                 TensorRef ref) const;
  // `part` of a buffer whose first element is element `begin` of the shard unit's flat buffer, from `offset` on.
  kernels::TensorView run(const kernels::Buffer& buffer, DType dtype, std::int64_t offset, std::int64_t begin,
                          plan::Interval part);
  kernels::TensorView zeroed(const kernels::Buffer& buffer);
  std::span<const std::int32_t> tokens(const kernels::Buffer& buffer, int micro_batch) const;

  nn::RankContext& context_;
  const RunPlan& run_;
  std::vector<UnitBuffers> units_;
  std::map<int, kernels::Buffer> gathered_;              // by shard unit
  std::map<std::pair<int, int>, kernels::Buffer> open_;  // by shard unit, micro-batch
  kernels::Buffer gradients_;                            // of all shard units, one after the other
  kernels::Buffer inputs_, targets_, evaluation_inputs_, evaluation_targets_;
  kernels::Buffer logits_, row_terms_, losses_, workspace_buffer_, checkpoint_staging_;
  nn::Workspace workspace_{nullptr, Bytes{}};
  kernels::ConstTensorView rotary_;
  std::vector<std::vector<TensorRef>> weight_refs_;  // by unit, role
  std::vector<std::vector<TensorRef>> gradient_refs_;
};

}  // namespace trireme::parallel
