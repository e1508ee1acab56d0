#include "base/ledger.h"

#include <fmt/format.h>

#include "base/check.h"

namespace trireme {
namespace {

struct Names {
  std::string_view name;
  std::string_view key;
};

constexpr std::array<Names, kMemoryClassCount> kNames{{{"weights", "weights"},
                                                       {"gradients", "gradients"},
                                                       {"exact accumulators", "exact_accumulators"},
                                                       {"master weights", "master_weights"},
                                                       {"moments", "moments"},
                                                       {"saved activations", "saved_activations"},
                                                       {"gathered parameters", "gathered_parameters"},
                                                       {"logits and loss", "logits_and_loss"},
                                                       {"token batch", "token_batch"},
                                                       {"communication buffers", "communication_buffers"},
                                                       {"checkpoint staging", "checkpoint_staging"},
                                                       {"workspace", "workspace"}}};

const Names& names_of(MemoryClass memory_class) {
  const auto index = static_cast<std::size_t>(memory_class);
  TRIREME_CHECK_LT(index, kNames.size());
  return kNames[index];
}

std::string difference(std::string_view what, Bytes predicted, Bytes counted) {
  return fmt::format("{}: predicted {} bytes, counted {} bytes ({:+d})", what, format_exact(predicted.count),
                     format_exact(counted.count), counted.count - predicted.count);
}

}  // namespace

std::string_view memory_class_name(MemoryClass memory_class) { return names_of(memory_class).name; }

std::string_view memory_class_key(MemoryClass memory_class) { return names_of(memory_class).key; }

void Ledger::book(MemoryClass memory_class, Bytes bytes) {
  TRIREME_CHECK_GE(bytes.count, 0);
  const auto i = static_cast<std::size_t>(index(memory_class));
  const Bytes rounded = allocation_size(bytes);
  current_[i] += rounded;
  current_sum_ += rounded;
  if (current_[i] > peak_[i]) peak_[i] = current_[i];
  if (current_sum_ > peak_sum_) {
    peak_sum_ = current_sum_;
    at_peak_ = current_;
  }
}

void Ledger::release(MemoryClass memory_class, Bytes bytes) {
  TRIREME_CHECK_GE(bytes.count, 0);
  const auto i = static_cast<std::size_t>(index(memory_class));
  const Bytes rounded = allocation_size(bytes);
  TRIREME_CHECK(rounded <= current_[i], "release of {} bytes of {}, of which {} are booked", rounded.count,
                memory_class_name(memory_class), current_[i].count);
  current_[i] -= rounded;
  current_sum_ -= rounded;
}

std::string Ledger::first_difference(const Ledger& predicted, const Ledger& counted) {
  for (int i = 0; i < kMemoryClassCount; ++i) {
    const auto memory_class = static_cast<MemoryClass>(i);
    if (predicted.peak(memory_class) == counted.peak(memory_class)) continue;
    return difference(fmt::format("peak of {}", memory_class_name(memory_class)), predicted.peak(memory_class),
                      counted.peak(memory_class));
  }
  if (predicted.peak_sum() == counted.peak_sum()) return "";
  return difference("peak of the sum", predicted.peak_sum(), counted.peak_sum());
}

}  // namespace trireme
