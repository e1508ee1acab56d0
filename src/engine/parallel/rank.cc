#include "engine/parallel/rank.h"

namespace trireme::parallel {
namespace {

std::unique_ptr<telemetry::Timeline> make_timeline(const RankOptions& options) {
  if (options.timeline_spans == 0) return nullptr;
  return std::make_unique<telemetry::Timeline>(options.timeline_spans);
}

}  // namespace

Rank::Rank(Env& env, Log& log, std::unique_ptr<kernels::Device> device, RunPlan plan, const RankOptions& options,
           const comm::CommunicatorFactory& factory)
    : plan_(std::move(plan)),
      predicted_(predicted_ledger(plan_)),
      device_(std::move(device)),
      arena_(*device_, {.booked = predicted_, .limit = options.memory_limit, .poison = options.poison}),
      staging_sizes_(plan::staging_of(plan_.table, plan_.layout, plan_.batch, plan_.inputs, plan_.rank)),
      staging_(arena_.allocate(MemoryClass::kCommunicationBuffers, plan::static_kind_name(plan::StaticKind::kStaging),
                               staging_sizes_.sum())),
      records_{.timeline = make_timeline(options)},
      communicators_(make_communicators(factory, plan_, staging_sizes_,
                                        {staging_.data(), static_cast<std::size_t>(staging_.bytes().count)}, records_)),
      context_{.env = env,
               .log = log,
               .device = *device_,
               .arena = arena_,
               .tensor = *communicators_.tensor,
               .pipeline = *communicators_.pipeline,
               .data = *communicators_.data,
               .kv_replicas = *communicators_.kv_replicas,
               .seed = options.seed,
               .threads = plan_.inputs.threads} {
  TRIREME_CHECK_EQ(device_->kernels().threads(), plan_.inputs.threads);
  executor_ = std::make_unique<Executor>(context_, plan_, records_.timeline.get());
}

}  // namespace trireme::parallel
