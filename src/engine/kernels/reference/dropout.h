#pragma once

// The dropout mask as a number: 0, or 1 / (1 - probability).

#include <cstdint>

#include "base/check.h"
#include "base/random.h"
#include "engine/kernels/kernels.h"

namespace trireme::kernels::reference {

inline void check_dropout(const Dropout& dropout, std::int64_t sequences) {
  TRIREME_CHECK(dropout.probability >= 0.0 && dropout.probability < 1.0, "dropout probability {}", dropout.probability);
  if (dropout.probability > 0.0) {
    TRIREME_CHECK_EQ(static_cast<std::int64_t>(dropout.streams.size()), sequences);
  }
}

// Of one element of the stream of one sequence.
template <class T>
T dropout_factor(const Dropout& dropout, std::int64_t sequence_index, std::int64_t element) {
  if (dropout.probability == 0.0) return T{1};
  const RandomKey key{dropout.seed, dropout.streams[static_cast<std::size_t>(sequence_index)]};
  const double draw = random_uniform(key, static_cast<std::uint64_t>(element));
  return draw >= dropout.probability ? static_cast<T>(1.0 / (1.0 - dropout.probability)) : T{0};
}

// For a tensor with a row a token.
class RowDropout {
 public:
  RowDropout(const Dropout& dropout, std::int64_t rows, std::int64_t columns) : dropout_(dropout) {
    if (dropout.probability == 0.0) return;
    TRIREME_CHECK_GT(dropout.sequence, 0);
    const std::int64_t sequences = static_cast<std::int64_t>(dropout.streams.size());
    check_dropout(dropout, sequences);
    TRIREME_CHECK_GT(rows, 0);
    TRIREME_CHECK_EQ(sequences * dropout.sequence % rows, 0);
    TRIREME_CHECK(dropout.row_begin >= 0 && dropout.row_begin % rows == 0, "rows {}+{}", dropout.row_begin, rows);
    TRIREME_CHECK_LE(dropout.row_begin + rows, sequences * dropout.sequence);
    TRIREME_CHECK_GE(dropout.column_begin, 0);
    TRIREME_CHECK_LE(dropout.column_begin + columns, dropout.columns_total);
  }

  // value dropped or scaled. A dropped one is zero whatever it was.
  template <class T>
  T apply(T value, std::int64_t row, std::int64_t column) const {
    if (dropout_.probability == 0.0) return value;
    const std::int64_t global_row = dropout_.row_begin + row;
    const std::int64_t position = global_row % dropout_.sequence;
    const std::int64_t element = position * dropout_.columns_total + dropout_.column_begin + column;
    const T factor = dropout_factor<T>(dropout_, global_row / dropout_.sequence, element);
    return factor == T{0} ? T{0} : value * factor;
  }

 private:
  const Dropout& dropout_;
};

}  // namespace trireme::kernels::reference
