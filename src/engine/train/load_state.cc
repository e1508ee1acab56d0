#include "engine/train/load_state.h"

#include <fmt/format.h>

#include "engine/train/state_view.h"

namespace trireme::train {
namespace {

using checkpoint::Slice;
using checkpoint::StoredState;
using plan::LocalBox;
using plan::TensorBox;

// The part of a rank's box that `common` is.
LocalBox part_of(const LocalBox& box, const TensorBox& common) {
  LocalBox part = box;
  part.box = common;
  part.offset += (common.rows.begin - box.box.rows.begin) * box.stride + common.columns.begin - box.box.columns.begin;
  return part;
}

class Loader {
 public:
  Loader(const checkpoint::Reader& checkpoint, kernels::Device& device, parallel::RankState& state)
      : checkpoint_(checkpoint), device_(device), state_(state) {
    const Bytes largest = checkpoint.largest_slice();
    const Bytes room{std::ssize(state.checkpoint_staging())};
    if (largest <= room) return;
    throw Error(
        ExitCode::kStorage, "checkpoint", "read " + checkpoint.directory(),
        fmt::format("its largest slice has {}, and {} is booked for one", format_bytes(largest), format_bytes(room)));
  }

  // `boxes`: all of one logical tensor.
  void load(const StoredState& tensor, const std::vector<LocalBox>& boxes) {
    for (const Slice& slice : tensor.slices) {
      std::span<const float> values;
      for (const LocalBox& box : boxes) {
        const TensorBox wanted = plan::common(box.box, slice.box);
        if (wanted.elements() == 0) continue;
        if (values.empty()) {
          values = checkpoint_.read(tensor, slice, state_.checkpoint_staging());
          bytes_.read += Bytes{std::ssize(values) * dtype_size(DType::kF32)};
        }
        store(tensor.kind, part_of(box, wanted), slice.box, values);
      }
    }
  }

  LoadedBytes bytes() const { return bytes_; }

 private:
  void store(plan::StateKind kind, const LocalBox& part, const TensorBox& of, std::span<const float> values) {
    const std::int64_t width = of.columns.length(), columns = part.box.columns.length();
    const bool adjoining = columns == width && columns == part.stride;  // rows, in the slice and here
    const std::int64_t rows = part.box.rows.length(), step = adjoining ? rows : 1;
    for (std::int64_t row = 0; row < rows; row += step) {
      const float* from = values.data() + (part.box.rows.begin + row - of.rows.begin) * width + part.box.columns.begin -
                          of.columns.begin;
      const std::int64_t begin = part.offset + row * part.stride;
      store_state(device_, state_, kind, part.shard_unit, {begin, begin + step * columns},
                  {from, static_cast<std::size_t>(step * columns)});
    }
    bytes_.needed += Bytes{part.box.elements() * dtype_size(DType::kF32)};
  }

  const checkpoint::Reader& checkpoint_;
  kernels::Device& device_;
  parallel::RankState& state_;
  LoadedBytes bytes_;
};

}  // namespace

LoadedBytes load_state(const checkpoint::Reader& checkpoint, kernels::Device& device, const parallel::RunPlan& plan,
                       parallel::RankState& state) {
  Loader loader(checkpoint, device, state);
  for (plan::StateKind kind : plan::kStateKinds) {
    std::map<int, std::vector<LocalBox>> by_parameter;
    for (const LocalBox& box : plan::read_boxes(plan.table, plan.layout, plan.rank, kind)) {
      by_parameter[box.parameter].push_back(box);
    }
    for (const auto& [parameter, boxes] : by_parameter) {
      const std::string& name = plan.table.parameters[static_cast<std::size_t>(parameter)].name;
      const StoredState* tensor = checkpoint.manifest().find(name, kind);
      if (tensor == nullptr) {
        throw Error(ExitCode::kStorage, "checkpoint", "read " + checkpoint.directory(),
                    fmt::format("there is no {} of {}", plan::state_kind_name(kind), name));
      }
      loader.load(*tensor, boxes);
    }
  }
  device.synchronize();
  return loader.bytes();
}

}  // namespace trireme::train
