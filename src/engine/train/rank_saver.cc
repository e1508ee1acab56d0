#include "engine/train/rank_saver.h"

#include "engine/train/state_view.h"

namespace trireme::train {

using plan::LocalBox;

RankSaver::RankSaver(Env& env, kernels::Device& device, const parallel::RunPlan& plan)
    : env_(env),
      device_(device),
      plan_(plan),
      tensors_(checkpoint::states_of(plan.table)),
      tiles_(plan::written_tiles(plan.table, plan.layout, plan.rank)),
      slices_(checkpoint::slices_of_rank(plan.table, plan.layout, plan.rank)) {}

RankSaver::~RankSaver() {
  if (thread_.joinable()) thread_.join();
}

void RankSaver::copy_tile(parallel::RankState& state, std::size_t slice, std::span<std::byte> to) const {
  const plan::StateKind kind = plan::kStateKinds[slice / tiles_.size()];
  const LocalBox& tile = tiles_[slice % tiles_.size()];
  const std::int64_t rows = tile.box.rows.length(), columns = tile.box.columns.length();
  const kernels::TensorView view =
      state_view(state, kind, tile.shard_unit, {tile.offset, tile.offset + (rows - 1) * tile.stride + columns});
  TRIREME_CHECK(view.dtype == DType::kF32);
  TRIREME_CHECK_EQ(static_cast<std::int64_t>(to.size()), tile.box.elements() * dtype_size(DType::kF32));
  device_.copy_rows_to_host(reinterpret_cast<float*>(to.data()), reinterpret_cast<const float*>(view.data), columns,
                            rows, tile.stride);
}

void RankSaver::begin(parallel::RankState& state, const std::string& path, std::function<void()> written) {
  TRIREME_CHECK(!thread_.joinable() || outcome().has_value(), "a save is in flight");
  if (thread_.joinable()) thread_.join();
  written_ = std::move(written);
  {
    const std::lock_guard lock(mutex_);
    outcome_.reset();
  }
  device_.synchronize();
  const std::span<std::byte> staging = state.checkpoint_staging();
  const auto bytes_of_slice = [this](std::size_t slice) {
    return static_cast<std::size_t>(slices_[slice].box.elements() * dtype_size(DType::kF32));
  };
  if (plan_.inputs.checkpoints == plan::CheckpointStaging::kSnapshot) {
    std::vector<std::span<const std::byte>> places(slices_.size());
    std::size_t at = 0;
    for (std::size_t slice = 0; slice < slices_.size(); ++slice) {
      const std::span<std::byte> place = staging.subspan(at, bytes_of_slice(slice));
      copy_tile(state, slice, place);
      places[slice] = place;
      at += place.size();
    }
    thread_ = std::thread([this, path, places = std::move(places)] {
      write(path, [&places](std::size_t slice) { return places[slice]; });
    });
    return;
  }
  TRIREME_CHECK(plan_.inputs.checkpoints == plan::CheckpointStaging::kTile, "no staging for a checkpoint is booked");
  thread_ = std::thread([this, path, &state, staging, bytes_of_slice] {
    write(path, [&](std::size_t slice) -> std::span<const std::byte> {
      const std::span<std::byte> place = staging.first(bytes_of_slice(slice));
      copy_tile(state, slice, place);
      return place;
    });
  });
}

void RankSaver::write(const std::string& path, const checkpoint::SliceBytes& bytes_of) {
  Outcome outcome;
  try {
    outcome.record = checkpoint::to_text(checkpoint::write_shard(env_, path, tensors_, slices_, bytes_of));
    if (written_) written_();
  } catch (const std::exception& error) {
    outcome.error = error.what();
  }
  const std::lock_guard lock(mutex_);
  outcome_ = std::move(outcome);
}

std::optional<RankSaver::Outcome> RankSaver::outcome() const {
  const std::lock_guard lock(mutex_);
  return outcome_;
}

}  // namespace trireme::train
