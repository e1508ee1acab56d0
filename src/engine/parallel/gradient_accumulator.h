#pragma once

// The gradient sink of ordered mode: contributions are added in place, in the order in which they come, which the
// schedule fixes as ascending micro-batches. The first of a step overwrites; where each micro-batch has a buffer of its
// own (reduce = microbatch over several replicas), each does.

#include <vector>

#include "engine/parallel/rank_state.h"

namespace trireme::parallel {

class GradientAccumulator {
 public:
  explicit GradientAccumulator(RankState& state);

  void begin_step();  // the next contribution to every tensor overwrites

  // The sink of one unit; short-lived.
  class UnitSink : public nn::GradientSink {
   public:
    UnitSink(GradientAccumulator& owner, int unit, int micro_batch)
        : owner_(owner), unit_(unit), micro_batch_(micro_batch) {}
    Target open(model::Role role) override;
    void close(model::Role role) override;

   private:
    GradientAccumulator& owner_;
    int unit_;
    int micro_batch_;
  };

  // Every tensor has had a contribution: CHECKed before gradients are used.
  void check_complete() const;

 private:
  struct Tensor {
    bool open = false;     // a layer is writing to it
    bool written = false;  // this step has a contribution
  };
  Tensor& tensor(TensorRef ref);
  RankState& rank_;
  std::vector<std::vector<Tensor>> tensors_;  // by shard unit
};

}  // namespace trireme::parallel
