#include <algorithm>
#include <limits>

#include "base/check.h"
#include "model/flops.h"
#include "model/parameters.h"
#include "plan/layout.h"

namespace trireme::plan {
namespace {

// Forward flops of units, in the order of the model.
struct Weights {
  double embedding;
  double layer;
  double head;
};

// Layers that differ count as their mean.
Weights weights(const model::Config& config, std::int64_t sequence) {
  const auto flops = [&](int unit) {
    const model::UnitFlops one = model::forward_flops(model::unit_flow(config, unit), 1, sequence);
    return one.gemm + one.attention_core;
  };
  const model::UnitFlops layers = model::layers_flops(config, 1, sequence);
  return {.embedding = flops(0),
          .layer = (layers.gemm + layers.attention_core) / static_cast<double>(config.layers),
          .head = flops(model::unit_count(config) - 1)};
}

// The most layers that a chunk may hold with at most `limit` flops; the first and last carry embedding and head.
int most_layers(const Weights& w, int chunk, int chunks, double limit) {
  double rest = limit;
  if (chunk == 0) rest -= w.embedding;
  if (chunk == chunks - 1) rest -= w.head;
  // A hair of slack, so that a limit that is a sum of the same terms is reached in spite of rounding.
  return static_cast<int>(rest / w.layer + 1e-9);
}

bool possible(const Weights& w, int layers, int chunks, double limit) {
  std::int64_t room = 0;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const int most = most_layers(w, chunk, chunks, limit);
    if (most < 1) return false;
    room += most;
  }
  return room >= layers;
}

}  // namespace

std::vector<int> balanced_chunks(const model::Config& config, int chunks, std::int64_t sequence) {
  const int layers = static_cast<int>(config.layers);
  TRIREME_CHECK(chunks >= 1 && chunks <= layers, "{} chunks of {} layers", chunks, layers);
  const Weights w = weights(config, sequence);
  // The smallest largest load is one of these: n layers, or n layers beside embedding or head.
  double best = std::numeric_limits<double>::infinity();
  for (int n = 1; n <= layers; ++n) {
    for (double extra : {0.0, w.embedding, w.head, chunks == 1 ? w.embedding + w.head : 0.0}) {
      const double limit = n * w.layer + extra;
      if (limit < best && possible(w, layers, chunks, limit)) best = limit;
    }
  }
  std::vector<int> result;
  std::int64_t excess = -layers;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    result.push_back(std::min(layers, most_layers(w, chunk, chunks, best)));
    excess += result.back();
  }
  for (; excess > 0; --excess) --*std::max_element(result.begin(), result.end());
  return result;
}

std::vector<Chunk> model_chunks(const model::Config& config, const Layout& layout) {
  const std::vector<int> layers = layout.chunk_layers.empty()
                                      ? balanced_chunks(config, layout.chunks(), config.max_positions)
                                      : layout.chunk_layers;
  std::vector<Chunk> chunks;
  int unit = 1;
  for (int i = 0; i < layout.chunks(); ++i) {
    Chunk chunk{.stage = i % layout.pp, .chunk = i / layout.pp, .first_unit = unit, .end_unit = unit};
    chunk.end_unit += layers[static_cast<std::size_t>(i)];
    unit = chunk.end_unit;
    if (i == 0) chunk.first_unit = 0;
    if (i == layout.chunks() - 1) chunk.end_unit = model::unit_count(config);
    chunks.push_back(chunk);
  }
  return chunks;
}

}  // namespace trireme::plan
