#include "model/operation_cost.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace trireme::model {
namespace {

double real(std::int64_t value) { return static_cast<double>(value); }

// Fewer pieces than ranks: neighbours share one.
double share(const SplitBlock& block, int tp) {
  const double ranks = std::min<double>(tp, real(block.count));
  const double pieces = real(block.count) / ranks;
  return (block.kind == PieceKind::kVocabulary ? std::ceil(pieces) : pieces) * real(block.piece);
}

class Counting {
 public:
  Counting(const UnitFlow& flow, const Operation& operation, int tp) : flow_(flow), o_(operation), tp_(tp) {}

  OperationCost cost() const {
    switch (o_.kind) {
      case OperationKind::kLookup:  // a row read, a row written
        return {.whole = 2 * columns(o_.writes), .forward_sums = 1};
      case OperationKind::kPositions:
      case OperationKind::kDropout:
      case OperationKind::kScale:
      case OperationKind::kNorm:
      case OperationKind::kAdd:
        return {.stream = columns(o_.reads) + columns(o_.writes.front())};
      case OperationKind::kProject:  // siblings read the same: one product
        return {.products = {{.columns = columns(o_.writes), .depth = columns(o_.reads)}}, .backward_sums = 1};
      case OperationKind::kProjectBack:
        return {.products = {{.columns = columns(o_.writes), .depth = columns(o_.reads)}}, .forward_sums = 1};
      case OperationKind::kHeadNorm:
      case OperationKind::kWholeNorm:
        return {.cut = columns(o_.reads) + columns(o_.writes.front())};
      case OperationKind::kRotary:
        return {};                     // on the way into heads
      case OperationKind::kAttention:  // query and key are brought into heads
        return {.query_columns = columns(o_.writes.front()),
                .heads = columns(o_.writes.back()),
                .window = o_.window,
                .cut = 2 * query_and_key()};
      case OperationKind::kActivation:  // and once more, for the bias or the product with the gate
        return {.cut = columns(o_.reads) + 2 * columns(o_.writes)};
      case OperationKind::kLoss:
        return {.products = {{.columns = share({PieceKind::kVocabulary, flow_.vocabulary, 1}, tp_),
                              .depth = columns(o_.reads)}},
                .backward_sums = 1};
    }
    TRIREME_CHECK(false, "operation {}", operation_name(o_.kind));
  }

 private:
  double columns(int value) const { return local_columns(flow_.values[static_cast<std::size_t>(value)], tp_); }
  double columns(const std::vector<int>& values) const {
    double sum = 0;
    for (int value : values) sum += columns(value);
    return sum;
  }
  // Of two values, or the first two parts of a fused one.
  double query_and_key() const {
    double sum = 0;
    int parts = 0;
    for (int value : o_.reads) {
      for (const SplitBlock& block : flow_.values[static_cast<std::size_t>(value)].blocks) {
        if (parts++ < 2) sum += share(block, tp_);
      }
    }
    return sum;
  }

  const UnitFlow& flow_;
  const Operation& o_;
  int tp_;
};

}  // namespace

double local_columns(const FlowValue& value, int tp) {
  if (value.blocks.empty()) return real(value.columns);
  double sum = 0;
  for (const SplitBlock& block : value.blocks) sum += share(block, tp);
  return sum;
}

OperationCost operation_cost(const UnitFlow& flow, const Operation& operation, int tp) {
  return Counting(flow, operation, tp).cost();
}

}  // namespace trireme::model
