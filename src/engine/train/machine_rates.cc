#include "engine/train/machine_rates.h"

#include <algorithm>
#include <numeric>

#include "engine/kernels/device.h"
#include "engine/train/peak.h"
#include "engine/train/run_world.h"

namespace trireme::train {
namespace {

constexpr Seconds kDeadline{120};
constexpr Seconds kBudget{0.3};  // of each figure
// Micro-batch rows, and widths of a layer of 768: attention's projections, the MLP, the vocabulary.
constexpr std::int64_t kShapes[][3] = {{2048, 768, 768},  {2048, 2304, 768}, {2048, 3072, 768},
                                       {2048, 768, 3072}, {768, 3072, 2048}, {256, 50257, 768}};

// Of one rank, while all others do the same.
class RankRates {
 public:
  RankRates(Env& env, int threads, comm::Communicator& all)
      : env_(env), device_(kernels::make_cpu_device(threads)), all_(all) {}

  MachineRates measure() {
    MachineRates rates;
    measure_most(rates);
    for (const auto& [rows, columns, inner] : kShapes) {
      together([&, m = rows, n = columns, k = inner] {
        rates.products.push_back({m, n, k, measure_gemm_rate(env_, *device_, DType::kF32, {m, n, k}, kBudget)});
      });
    }
    measure_most(rates);
    if (all_.size() > 1) {
      rates.all_reduce_latency = all_reduce(1, 2000);
      constexpr std::int64_t kElements = 1 << 24;
      const double sent =
          2.0 * (all_.size() - 1) / all_.size() * static_cast<double>(kElements * dtype_size(DType::kF32));
      rates.all_reduce_bytes_per_s = sent / all_reduce(kElements, 8).count;
    }
    return rates;
  }

 private:
  // What is to be as high as the machine allows: best of all times that it is measured, which lie apart.
  void measure_most(MachineRates& rates) {
    const auto raise = [this](double& best, DType dtype) {
      together([&] { best = std::max(best, measure_gemm_rate(env_, *device_, dtype, {1024, 1024, 1024}, kBudget)); });
    };
    raise(rates.fp32_flops_per_s, DType::kF32);
    raise(rates.bf16_flops_per_s, DType::kBF16);
    together(
        [&] { rates.copy_bytes_per_s = std::max(rates.copy_bytes_per_s, measure_copy_rate(env_, *device_, kBudget)); });
  }
  template <class Work>
  void together(const Work& work) {
    all_.barrier();
    work();
  }
  // Seconds of one, the mean of `count` but for as many before them that are not looked at.
  Seconds all_reduce(std::int64_t elements, int count) {
    std::vector<float> values(static_cast<std::size_t>(elements), 1e-30F);
    double begun = 0;
    for (int i = 0; i < 2 * count; ++i) {
      if (i == count) begun = env_.now().count;
      all_.all_reduce(device_->stream(), reinterpret_cast<std::byte*>(values.data()), elements, DType::kF32,
                      comm::Reduction::kSum)
          ->wait();
    }
    return {(env_.now().count - begun) / count};
  }

  Env& env_;
  std::unique_ptr<kernels::Device> device_;
  comm::Communicator& all_;
};

}  // namespace

MachineRates measure_machine(Env& env, Log& log, int ranks, int threads) {
  TRIREME_CHECK(ranks >= 1 && threads >= 1);
  const std::unique_ptr<RunWorld> world = make_thread_run_world(ranks, kDeadline);
  std::vector<MachineRates> of_rank(static_cast<std::size_t>(ranks));
  std::vector<int> everybody(of_rank.size());
  std::iota(everybody.begin(), everybody.end(), 0);
  log.info("measures products, memory and sums: {} rank{} x {} thread{}", ranks, ranks == 1 ? "" : "s", threads,
           threads == 1 ? "" : "s");
  run_ranks(*world, [&](int rank) {
    const std::unique_ptr<comm::Communicator> all = world->factory(rank)({"all", everybody}, {});
    of_rank[static_cast<std::size_t>(rank)] = RankRates(env, threads, *all).measure();
  });
  // The slowest rank is what the others wait for.
  MachineRates slowest = of_rank.front();
  for (const MachineRates& one : of_rank) {
    slowest.fp32_flops_per_s = std::min(slowest.fp32_flops_per_s, one.fp32_flops_per_s);
    slowest.bf16_flops_per_s = std::min(slowest.bf16_flops_per_s, one.bf16_flops_per_s);
    slowest.copy_bytes_per_s = std::min(slowest.copy_bytes_per_s, one.copy_bytes_per_s);
    for (std::size_t i = 0; i < slowest.products.size(); ++i) {
      slowest.products[i].flops_per_s = std::min(slowest.products[i].flops_per_s, one.products[i].flops_per_s);
    }
  }
  for (const ProductRate& product : slowest.products) {  // no product is faster than the rate of products
    slowest.fp32_flops_per_s = std::max(slowest.fp32_flops_per_s, product.flops_per_s);
  }
  slowest.ranks = ranks;
  slowest.threads = threads;
  return slowest;
}

}  // namespace trireme::train
