#pragma once

// Floating-point operations of training, exact for the GEMMs and for attention. A multiply-add counts two.
// Convention: "model" flops count each product of the mathematics once, forward and backward (backward = twice
// forward), no recompute, attention without the causal discount (PaLM, appendix B), of a window's keys where there is
// one; "hardware" flops add what recompute repeats. For GPT with f = 4h the sums are
// 72 B L s h^2 (1 + s/6h + V/12hL) and, under full recompute, 96 B L s h^2 (1 + s/6h + V/16hL) (Narayanan et al. 2021;
// Korthikanti et al. 2022, appendix A).

#include <cstdint>

#include "base/units.h"
#include "model/activations.h"
#include "model/config.h"
#include "model/flow.h"

namespace trireme::model {

// Forward pass of `sequences` sequences of `sequence` tokens through one unit (all tensor-parallel ranks together). For
// the unit's input backward has as many of products again, for its weights too; of the attention core twice as many.
struct UnitFlops {
  double gemm = 0;            // projections, MLP, output head
  double attention_core = 0;  // scores and values: 4 B s^2 a d; in a window of w < s: 4 B s w a d
};
UnitFlops forward_flops(const UnitFlow& flow, std::int64_t sequences, std::int64_t sequence);

// Of all decoder layers.
UnitFlops layers_flops(const Config& config, std::int64_t sequences, std::int64_t sequence);

// A whole step over `sequences` sequences.
Flops model_flops(const Config& config, std::int64_t sequences, std::int64_t sequence);
Flops hardware_flops(const Config& config, std::int64_t sequences, std::int64_t sequence, Recompute recompute);

}  // namespace trireme::model
