#pragma once

// The optimizer's step of a layout, done again in float64 from the layout's own gradients. Two layouts' weights cannot
// be compared after it: AdamW's first step is about learning rate x sign(gradient), so an element whose gradient is a
// rounding away from zero goes the one way or the other. What must hold is that each does with its gradients what the
// optimizer says.

#include <map>
#include <string>
#include <vector>

#include "engine/train/layout_curve.h"

namespace trireme::train {

// The element of a tensor that is furthest from what it must be, by difference over bound.
struct UpdateMiss {
  double difference = 0;  // over the larger of the weight and the learning rate
  double bound = 0;       // a few roundings in fp32; what layers use: 0, it is the rounded weight, bit for bit
};

class UpdateOracle {
 public:
  UpdateOracle(const model::ParameterTable& table, const RunConfig& config) : table_(table), config_(config) {}

  // The norm and the loss are of all tensors: what the norm must be, in float64, of these gradients.
  static double norm_of(const StepValues& values);
  // The next step, `step` (from 1), of the same layout: its tensors before and after. By Hugging Face name.
  std::map<std::string, UpdateMiss> next(std::int64_t step, const std::map<std::string, TensorValues>& before,
                                         const StepValues& after);

 private:
  struct Moments {
    std::vector<double> first, second;
    std::vector<float> magnitude;  // the first moment of absolute values: what the first one's roundings are of
  };
  struct Rates;
  UpdateMiss updated(const model::Parameter& parameter, const Rates& rates, const TensorValues& before,
                     const TensorValues& after);

  const model::ParameterTable& table_;
  const RunConfig& config_;
  std::map<std::string, Moments> moments_;
};

}  // namespace trireme::train
