#pragma once

// The rules of a legal layout, one family a function; check_layout() asks them in turn. Each Failure carries the
// option, its value, the rule, and the nearest legal values.

#include "plan/layout.h"

namespace trireme::plan {

Status check_degrees(const model::Config& config, const Layout& layout, const Batch& batch);
Status check_tensor_rules(const model::Config& config, const Layout& layout, const Batch& batch);
Status check_pipeline_rules(const model::Config& config, const Layout& layout, const Batch& batch);
Status check_batch_rules(const model::Config& config, const Layout& layout, const Batch& batch);
Status check_all_reduce_rules(const model::Config& config, const Layout& layout, const Batch& batch);

}  // namespace trireme::plan
