#include "engine/parallel/local_rank.h"

namespace trireme::parallel {

LocalRank::LocalRank(Env& env, Log& log, std::unique_ptr<kernels::Device> device, RunPlan plan,
                     const LocalRankOptions& options)
    : plan_(std::move(plan)),
      predicted_(predicted_ledger(plan_)),
      device_(std::move(device)),
      arena_(*device_, {.booked = predicted_, .limit = options.memory_limit, .poison = options.poison}),
      tensor_(comm::make_self_communicator("tensor", 0)),
      pipeline_(comm::make_self_communicator("pipeline", 0)),
      data_(comm::make_self_communicator("data", 0)),
      context_{.env = env,
               .log = log,
               .device = *device_,
               .arena = arena_,
               .tensor = *tensor_,
               .pipeline = *pipeline_,
               .data = *data_,
               .seed = options.seed,
               .threads = plan_.inputs.threads} {
  TRIREME_CHECK_EQ(plan_.layout.world(), 1);
  TRIREME_CHECK_EQ(device_->kernels().threads(), plan_.inputs.threads);
  executor_ = std::make_unique<Executor>(context_, plan_);
}

}  // namespace trireme::parallel
