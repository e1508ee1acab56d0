#pragma once

// The dropouts of a transformer, each a mask that is a function of seed, place, layer and sample: made again in
// backward and in recompute instead of being kept.

#include <string_view>
#include <vector>

#include "engine/nn/context.h"

namespace trireme::nn {

// Owns the streams that a kernels::Dropout points to.
class DropoutMask {
 public:
  // purpose: "embedding", "attention", "attention output", "mlp output". Columns are those of the whole tensor. Rows
  // are this rank's own (token_rows.h), but of "attention" all.
  DropoutMask(const UnitContext& context, std::string_view purpose, double probability, std::int64_t columns);
  const kernels::Dropout& spec() const { return spec_; }
  bool active() const { return spec_.probability > 0.0; }

 private:
  std::vector<std::uint64_t> streams_;
  kernels::Dropout spec_;
};

}  // namespace trireme::nn
