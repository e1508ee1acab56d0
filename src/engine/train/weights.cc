#include "engine/train/weights.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <vector>

#include "base/random.h"
#include "checkpoint/hugging_face.h"
#include "checkpoint/model_weights.h"
#include "checkpoint/safetensors_writer.h"
#include "engine/train/state_view.h"

namespace trireme::train {
namespace {

using kernels::TensorView;
using plan::Interval;

constexpr std::int64_t kPieceElements = 1 << 20;  // host memory of a piece: 4 MiB

// Some whole rows of a local tensor: global rows [row, row + rows), the tensor's column intervals.
struct Piece {
  std::int64_t row = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;  // local
  std::int64_t offset = 0;   // local elements before the piece
  const std::vector<Interval>* column_intervals = nullptr;
};

void for_each_piece(const model::Parameter& parameter, const plan::LocalTensor& local,
                    const std::function<void(const Piece&)>& visit) {
  const plan::TensorCut cut = plan::cut_of(parameter, local.intervals);
  std::int64_t width = 0;
  for (const Interval& c : cut.columns) width += c.length();
  const std::int64_t step = std::max<std::int64_t>(1, kPieceElements / std::max<std::int64_t>(1, width));
  std::int64_t offset = 0;
  for (const Interval& interval : cut.rows) {
    for (std::int64_t row = interval.begin; row < interval.end; row += step) {
      const std::int64_t count = std::min(step, interval.end - row);
      visit({.row = row, .rows = count, .columns = width, .offset = offset, .column_intervals = &cut.columns});
      offset += count * width;
    }
  }
}

// The part of a local tensor whose weights this rank keeps.
struct KeptWeights {
  const model::Parameter& parameter;
  const plan::LocalTensor& local;
  int shard_unit = 0;
  Interval part;  // elements of the local tensor
};

// Calls `visit` for every local tensor that has weights here.
void for_each_weight(const parallel::RunPlan& plan, parallel::RankState& state,
                     const std::function<void(const KeptWeights&)>& visit) {
  const int dp_index = plan::coordinates_of(plan.layout, plan.rank).dp;
  for (int unit = 0; unit < state.shard_unit_count(); ++unit) {
    const plan::ShardUnit& shard = state.shard_unit(unit);
    if (!shard.holds_weights) continue;
    for (const plan::LocalTensor& local : shard.tensors) {
      const Interval part = plan::kept_weights(shard, local, plan.layout, dp_index);
      if (part.length() == 0) continue;
      visit({.parameter = plan.table.parameters[static_cast<std::size_t>(local.parameter)],
             .local = local,
             .shard_unit = unit,
             .part = part});
    }
  }
}

// What a piece and a part have in common, in elements of the local tensor.
Interval common(const Piece& piece, const Interval& part) {
  return plan::common({piece.offset, piece.offset + piece.rows * piece.columns}, part);
}

// Host floats of a piece into what is kept of it.
void store(kernels::Device& device, parallel::RankState& state, const KeptWeights& kept, const Piece& piece,
           const std::vector<float>& values) {
  const Interval wanted = common(piece, kept.part);
  const std::int64_t begin = kept.local.offset + wanted.begin;
  store_state(device, state, plan::StateKind::kWeight, kept.shard_unit, {begin, begin + wanted.length()},
              std::span(values).subspan(static_cast<std::size_t>(wanted.begin - piece.offset),
                                        static_cast<std::size_t>(wanted.length())));
}

float initial_value(const model::Initialiser& init, RandomKey key, std::int64_t element) {
  switch (init.kind) {
    case model::InitKind::kZeros:
      return 0.0F;
    case model::InitKind::kOnes:
      return 1.0F;
    case model::InitKind::kNormal:
      break;
  }
  return static_cast<float>(init.standard_deviation * random_normal(key, static_cast<std::uint64_t>(element)));
}

}  // namespace

void fill_weights(kernels::Device& device, const parallel::RunPlan& plan, const WeightSource& source,
                  parallel::RankState& state) {
  for_each_weight(plan, state, [&](const KeptWeights& kept) {
    const model::Parameter& parameter = kept.parameter;
    const std::function<float(std::int64_t)> value_of = source(parameter);
    for_each_piece(parameter, kept.local, [&](const Piece& piece) {
      if (common(piece, kept.part).length() == 0) return;
      std::vector<float> values;
      values.reserve(static_cast<std::size_t>(piece.rows * piece.columns));
      for (std::int64_t row = piece.row; row < piece.row + piece.rows; ++row) {
        for (const Interval& c : *piece.column_intervals) {
          for (std::int64_t column = c.begin; column < c.end; ++column) {
            values.push_back(value_of(row * parameter.columns() + column));
          }
        }
      }
      store(device, state, kept, piece, values);
    });
  });
}

void initialise_weights(kernels::Device& device, const parallel::RunPlan& plan, std::uint64_t seed,
                        parallel::RankState& state) {
  const auto source = [seed](const model::Parameter& parameter) -> std::function<float(std::int64_t)> {
    const RandomKey key{seed, stream_of("initialise", parameter.name)};
    return [&parameter, key](std::int64_t element) { return initial_value(parameter.init, key, element); };
  };
  fill_weights(device, plan, source, state);
}

void import_weights(Env& env, kernels::Device& device, const parallel::RunPlan& plan, const std::string& path,
                    parallel::RankState& state, std::int64_t stored_layers) {
  const checkpoint::ModelWeights weights =
      checkpoint::ModelWeights::open(env, path, plan.table, stored_layers).or_throw();
  for_each_weight(plan, state, [&](const KeptWeights& kept) {
    const model::Parameter& parameter = kept.parameter;
    for_each_piece(parameter, kept.local, [&](const Piece& piece) {
      if (common(piece, kept.part).length() == 0) return;
      std::vector<float> values(static_cast<std::size_t>(piece.rows * piece.columns));
      std::int64_t column = 0;
      for (const Interval& c : *piece.column_intervals) {
        std::vector<float> part(static_cast<std::size_t>(piece.rows * c.length()));
        weights.read_box(static_cast<std::size_t>(kept.local.parameter), {piece.row, piece.row + piece.rows}, c, part);
        for (std::int64_t row = 0; row < piece.rows; ++row) {
          std::copy_n(part.begin() + row * c.length(), c.length(), values.begin() + row * piece.columns + column);
        }
        column += c.length();
      }
      store(device, state, kept, piece, values);
    });
  });
}

namespace {

// Values of elements [first, first + values) of a piece, written to where they lie in the whole tensor.
void place(const Piece& piece, std::int64_t first, const std::vector<float>& values, std::int64_t columns,
           std::vector<float>& whole) {
  const std::int64_t end = first + std::ssize(values);
  std::int64_t at = 0;  // of the piece
  for (std::int64_t row = piece.row; row < piece.row + piece.rows; ++row) {
    for (const Interval& c : *piece.column_intervals) {
      const std::int64_t from = std::clamp(first, at, at + c.length()), to = std::clamp(end, from, at + c.length());
      std::copy_n(values.begin() + (from - first), to - from, whole.begin() + row * columns + c.begin + (from - at));
      at += c.length();
    }
  }
}

// What the ranks keep of one parameter, in their order: of ranks that keep the same, the first alone.
struct HeldSlice {
  int rank = 0;
  plan::LocalTensor local;
  Interval part;  // elements of the local tensor
};
std::vector<std::vector<HeldSlice>> slices_by_parameter(const model::ParameterTable& table,
                                                        const plan::Layout& layout) {
  std::vector<std::vector<HeldSlice>> all(table.parameters.size());
  for (int rank = 0; rank < layout.world(); ++rank) {
    const plan::Coordinates at = plan::coordinates_of(layout, rank);
    if (at.dp != 0 && layout.zero < 3) continue;
    for (const plan::ShardUnit& shard : plan::shard_units(table, layout, rank)) {
      if (!shard.holds_weights || shard.tied_head) continue;
      for (const plan::LocalTensor& local : shard.tensors) {
        if (at.tp % local.tensor_replicas != 0) continue;
        const Interval part = plan::kept_weights(shard, local, layout, at.dp);
        if (part.length() > 0) all[static_cast<std::size_t>(local.parameter)].push_back({rank, local, part});
      }
    }
  }
  return all;
}

// Some of what this rank keeps of a parameter.
std::vector<float> own_values(const RankWeights& own, const model::Parameter& parameter, const Interval& wanted) {
  const parallel::TensorRef ref = own.state.weight_ref(parameter.unit, parameter.role);
  const std::int64_t begin = own.state.place_of(ref).begin;
  const TensorView view = own.state.weights(ref.shard_unit, {begin + wanted.begin, begin + wanted.end});
  return load(own.device, view);
}

void send_slice(const RankWeights& own, const model::Parameter& parameter, const HeldSlice& slice, Control& control) {
  for_each_piece(parameter, slice.local, [&](const Piece& piece) {
    const Interval wanted = common(piece, slice.part);
    if (wanted.length() > 0) control.send_to_leader(own_values(own, parameter, wanted));
  });
}

std::vector<float> collect(const RankWeights& own, const model::Parameter& parameter,
                           const std::vector<HeldSlice>& slices, Control& control) {
  std::vector<float> whole(static_cast<std::size_t>(parameter.elements()), std::nanf(""));
  for (const HeldSlice& slice : slices) {
    for_each_piece(parameter, slice.local, [&](const Piece& piece) {
      const Interval wanted = common(piece, slice.part);
      if (wanted.length() == 0) return;
      std::vector<float> values(static_cast<std::size_t>(wanted.length()));
      if (slice.rank == control.rank()) {
        values = own_values(own, parameter, wanted);
      } else {
        control.receive_from(slice.rank, values);
      }
      place(piece, wanted.begin - piece.offset, values, parameter.columns(), whole);
    });
  }
  if (!std::all_of(whole.begin(), whole.end(), [](float x) { return std::isfinite(x); })) {
    throw Error(ExitCode::kDiverged, "weights", "export", fmt::format("{} is not finite", parameter.name),
                "lower optimizer.learning_rate, lengthen warm-up, or clip");
  }
  return whole;
}

}  // namespace

void export_model(Env& env, const RankWeights& own, Control& control, const std::string& directory,
                  const checkpoint::ModelDescription& description) {
  const model::ParameterTable& table = own.plan.table;
  TRIREME_CHECK_EQ(control.ranks(), own.plan.layout.world());
  const std::vector<std::vector<HeldSlice>> slices = slices_by_parameter(table, own.plan.layout);
  if (!control.leads()) {
    for (std::size_t index = 0; index < table.parameters.size(); ++index) {
      for (const HeldSlice& slice : slices[index]) {
        if (slice.rank == control.rank()) send_slice(own, table.parameters[index], slice, control);
      }
    }
    return;
  }
  env.make_directories(directory);
  std::vector<checkpoint::TensorSpec> specs;
  for (const model::Parameter& parameter : table.parameters) {
    specs.push_back({.name = parameter.name, .dtype = own.state.dtype(), .shape = parameter.shape});
  }
  checkpoint::SafetensorsWriter writer(env, join_path(directory, checkpoint::kSafetensorsFile), std::move(specs));
  for (std::size_t index = 0; index < table.parameters.size(); ++index) {
    const model::Parameter& parameter = table.parameters[index];
    writer.write_floats(parameter.name, collect(own, parameter, slices[index], control));
  }
  writer.finish();
  for (const auto& [name, content] : description.files) env.write_file_atomically(join_path(directory, name), content);
  env.write_file_atomically(join_path(directory, "config.json"),
                            checkpoint::hugging_face_config(description.config, table.config, own.state.dtype()));
}

}  // namespace trireme::train
