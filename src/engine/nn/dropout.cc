#include "engine/nn/dropout.h"

#include "base/random.h"

namespace trireme::nn {

DropoutMask::DropoutMask(const UnitContext& context, std::string_view purpose, double probability,
                         std::int64_t columns) {
  if (!context.training || probability <= 0.0) return;
  const std::uint64_t place = stream_of("dropout", purpose);
  for (std::uint64_t sample : context.samples) {
    streams_.push_back(stream_of("dropout", place, static_cast<std::uint64_t>(context.unit), sample));
  }
  spec_ = kernels::Dropout{.probability = probability,
                           .seed = context.rank.seed,
                           .streams = streams_,
                           .sequence = context.sequence,
                           .columns_total = columns,
                           .column_begin = 0,
                           .row_begin = context.first_row()};
}

}  // namespace trireme::nn
