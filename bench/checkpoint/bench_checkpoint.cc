// What a save costs one rank, beside what its bytes cost by themselves: the stall of a snapshot against a plain copy
// of as many bytes, the write against the stall of a save that nothing hides.
//
//   bench_checkpoint MODEL_CONFIG DIRECTORY ROUNDS     one JSON object on standard output, seconds by round

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <fmt/format.h>

#include "base/log.h"
#include "engine/parallel/rank.h"
#include "engine/train/rank_saver.h"
#include "engine/train/weights.h"

namespace {

using namespace trireme;

// One rank of the model on a small batch, with its weights, and room for what `staging` says.
parallel::RunPlan plan_of(Env& env, const std::string& config, plan::CheckpointStaging staging) {
  return parallel::make_run_plan(model::load_config(env, config).or_throw(), plan::Layout{},
                                 plan::Batch{.sequence = 16}, {.checkpoints = staging}, 0);
}

Json seconds(const std::vector<double>& values) {
  Json list = Json::array();
  for (double value : values) list.push_back(value);
  return list;
}

// What a training step leaves behind: caches that hold something else.
void use_caches() {
  static std::vector<std::int64_t> other(std::size_t{64} << 20);
  for (std::int64_t& value : other) ++value;
}

// Copies between two buffers that were written before, in pieces as large as a tile.
std::vector<double> copies(Env& env, std::size_t bytes, int rounds) {
  const std::vector<std::byte> from(bytes, std::byte{1});
  std::vector<std::byte> to(bytes, std::byte{2});
  std::vector<double> took;
  for (int round = 0; round < rounds; ++round) {
    use_caches();
    const double begin = env.now().count;
    constexpr std::size_t kPiece = std::size_t{4} << 20;
    for (std::size_t at = 0; at < bytes; at += kPiece) {
      std::memcpy(to.data() + at, from.data() + at, std::min(kPiece, bytes - at));
    }
    took.push_back(env.now().count - begin);
  }
  return took;
}

struct Save {
  std::vector<double> stall, whole;
  std::int64_t bytes = 0;
};
Save saves(Env& env, const std::string& config, const std::string& directory, plan::CheckpointStaging staging,
           int rounds) {
  MemoryLog log;
  parallel::Rank rank(env, log, kernels::make_cpu_device(1), plan_of(env, config, staging), {});
  train::initialise_weights(rank.device(), rank.plan(), 1, rank.executor().state());
  train::RankSaver saver(env, rank.device(), rank.plan());
  Save save;
  for (int round = 0; round < rounds; ++round) {
    const std::string path = join_path(directory, "bench.safetensors");
    use_caches();
    const double begin = env.now().count;
    saver.begin(rank.executor().state(), path);
    save.stall.push_back(env.now().count - begin);
    while (!saver.outcome()) env.sleep(Seconds{0.001});
    save.whole.push_back(env.now().count - begin);
    if (!saver.outcome()->error.empty()) throw Error(ExitCode::kStorage, "bench", "save", saver.outcome()->error);
    save.bytes = env.file_size(path);
    env.remove_file(path);
  }
  return save;
}

int run(const std::string& config, const std::string& directory, int rounds) {
  Env& env = posix_env();
  const Save snapshot = saves(env, config, directory, plan::CheckpointStaging::kSnapshot, rounds);
  const Save tile = saves(env, config, directory, plan::CheckpointStaging::kTile, rounds);
  fmt::print("{}\n", Json::object({{"bytes", snapshot.bytes},
                                   {"copy_s", seconds(copies(env, static_cast<std::size_t>(snapshot.bytes), rounds))},
                                   {"stall_s", seconds(snapshot.stall)},
                                   {"write_s", seconds(snapshot.whole)},
                                   {"synchronous_s", seconds(tile.whole)}})
                         .dump(2));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    fmt::print(stderr, "bench_checkpoint MODEL_CONFIG DIRECTORY ROUNDS\n");
    return 2;
  }
  try {
    return run(argv[1], argv[2], std::atoi(argv[3]));
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
