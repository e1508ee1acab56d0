#pragma once

// Which tokens a tensor rank holds of the residual stream, and the exchanges at the borders of the tensor-parallel
// regions. Without sequence parallelism every rank holds all T rows, nothing is gathered and sums are all-reduces. With
// it (Korthikanti et al. 2022, section 4.2.2) rank r of N holds rows [r T / N, (r + 1) T / N): its share, in the
// order of comm::share_of.

#include <vector>

#include "engine/nn/context.h"

namespace trireme::nn {

// All T rows of a tensor that a rank holds its own rows of: gathered into the workspace, or `own` itself. Workspace is
// taken until the caller's Scope ends.
kernels::ConstTensorView all_rows(const UnitContext& context, kernels::ConstTensorView own);
// The same, gathered into `place`.
kernels::ConstTensorView all_rows_in(const UnitContext& context, kernels::ConstTensorView own,
                                     kernels::TensorView place);

// Where partial sums of all T rows go: the workspace, or `own` itself.
kernels::TensorView rows_to_sum(const UnitContext& context, kernels::TensorView own);
// Sums rows_to_sum's tensor over the tensor ranks; returns this rank's rows of it.
kernels::TensorView sum_own_rows(const UnitContext& context, kernels::TensorView rows);

// Rows of this rank that are of one sequence, ascending.
struct SequencePart {
  std::int64_t begin = 0;  // local row
  std::int64_t rows = 0;
  std::int64_t position = 0;  // of the first in its sequence
};
std::vector<SequencePart> own_sequence_parts(const UnitContext& context);

}  // namespace trireme::nn
