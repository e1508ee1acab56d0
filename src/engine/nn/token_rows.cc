#include "engine/nn/token_rows.h"

#include <algorithm>

namespace trireme::nn {

std::vector<SequencePart> own_sequence_parts(const UnitContext& context) {
  std::vector<SequencePart> parts;
  for (std::int64_t row = 0; row < context.widths.sequence_tokens; row += parts.back().rows) {
    const std::int64_t position = (context.first_row() + row) % context.sequence;
    const std::int64_t rows = std::min(context.sequence - position, context.widths.sequence_tokens - row);
    parts.push_back({.begin = row, .rows = rows, .position = position});
  }
  return parts;
}

}  // namespace trireme::nn
