#include "model/flops.h"

#include "base/check.h"
#include "model/parameters.h"

namespace trireme::model {
namespace {

double real(std::int64_t value) { return static_cast<double>(value); }

double sum(const UnitFlops& flops) { return flops.gemm + flops.attention_core; }

double forward_of_layers(const Config& config, std::int64_t sequences, std::int64_t sequence) {
  return real(config.layers) * sum(forward_flops(config, UnitKind::kDecoder, sequences, sequence));
}

}  // namespace

UnitFlops forward_flops(const Config& config, UnitKind unit, std::int64_t sequences, std::int64_t sequence) {
  const double tokens = real(sequences) * real(sequence);
  const double hidden = real(config.hidden);
  switch (unit) {
    case UnitKind::kEmbedding:
      return {};  // a look-up
    case UnitKind::kHead:
      return {.gemm = 2.0 * tokens * hidden * real(config.vocabulary)};
    case UnitKind::kDecoder: {
      const double attention = 2.0 * hidden * (real(config.query_width()) + real(config.kv_width()));
      const double mlp = (config.gated_mlp ? 3.0 : 2.0) * hidden * real(config.ffn);
      return {.gemm = 2.0 * tokens * (attention + mlp),
              .attention_core = 4.0 * tokens * real(sequence) * real(config.query_width())};
    }
  }
  TRIREME_CHECK(false, "unit kind {}", static_cast<int>(unit));
}

Flops model_flops(const Config& config, std::int64_t sequences, std::int64_t sequence) {
  const double head = sum(forward_flops(config, UnitKind::kHead, sequences, sequence));
  return {3.0 * (forward_of_layers(config, sequences, sequence) + head)};
}

Flops hardware_flops(const Config& config, std::int64_t sequences, std::int64_t sequence, Recompute recompute) {
  // Selective recompute repeats elementwise work only, which this count leaves out everywhere.
  const double again = recompute == Recompute::kFull ? forward_of_layers(config, sequences, sequence) : 0.0;
  return {model_flops(config, sequences, sequence).count + again};
}

}  // namespace trireme::model
