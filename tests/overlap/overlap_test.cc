// Reductions that run while backward goes on are hidden by it. Two replicas on a simulated link that needs half of the
// backward's time for a step's gradients: with overlap at most a fifth of that is waited for, without it all.

#include <atomic>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "engine/comm/faults.h"
#include "engine/train/rank_trainer.h"
#include "engine/train/run_checks.h"
#include "engine/train/run_world.h"
#include "support/verify_run.h"

namespace trireme::testing {
namespace {

struct Measured {
  double backward_s = 0;  // first backward instruction to the norm, shortest step
  comm::AxisTimes data;   // of the step with the least exposed time
  std::int64_t sent = 0;  // bytes a step
  std::string norm;       // of the last step
};

// 12 layers of 192, two replicas with one thread each.
train::ResolvedRun resolved(VerifyRun& files, bool overlap) {
  model::Config config = files.config("llama");
  config.layers = 12;
  config.hidden = 192;
  config.head_dim = 24;
  config.ffn = 512;
  config.max_positions = 128;
  files.use_config(config);
  return files.resolved({{"layout.dp", "2"},
                         {"layout.overlap", overlap ? "true" : "false"},
                         {"train.sequence", "128"},
                         {"train.micro_batch", "4"},
                         {"train.global_batch", "8"}});
}

Measured measure(VerifyRun& files, bool overlap, double link_bytes_per_s) {
  const train::ResolvedRun run = resolved(files, overlap);
  const data::Sampler tokens = train::open_training(files.env(), run);
  const std::unique_ptr<train::RunWorld> world = train::make_thread_run_world(2, Seconds{60});
  Measured measured;
  train::run_ranks(*world, [&](int number) {
    double begin = 0, backward_s = 1e9;
    train::RankHooks hooks;
    hooks.communicator = [&](int, std::unique_ptr<comm::Communicator> inner) {
      const auto link = std::make_shared<comm::FaultState>(
          comm::FaultPlan{.link = {.latency = {}, .bytes_per_s = link_bytes_per_s}, .faults = {}});
      return comm::make_faulty_communicator(std::move(inner), link);
    };
    hooks.executor = [&](int, parallel::Executor& executor) {
      executor.observer = [&](const plan::Instruction& instruction) {
        const double now = posix_env().now().count;
        if (instruction.op == plan::Op::kForward) begin = now;
        if (instruction.op == plan::Op::kBackwardWeight && instruction.unit == 0) {
          backward_s = std::min(backward_s, now - begin);
        }
      };
    };
    train::RankTrainer trainer(posix_env(), files.log(), run, number, kernels::make_cpu_device(1),
                               world->factory(number), tokens, nullptr, hooks);
    for (int step = 1; step <= 5; ++step) {
      const parallel::StepResult result = trainer.step(step);
      if (number != 0) continue;
      const comm::AxisTimes& data = trainer.last_times().at("data");
      if (step == 1 || data.exposed < measured.data.exposed) measured.data = data;
      measured.norm = format_hex(result.grad_norm);
    }
    if (number != 0) return;
    measured.backward_s = backward_s;
    for (const comm::TrafficCount& count : trainer.last_traffic()) measured.sent += count.sent.count;
  });
  return measured;
}

TEST(Overlap, HidesALinkThatNeedsHalfOfTheBackward) {
  VerifyRun files;
  const Measured fast = measure(files, true, 0);
  const double rate = static_cast<double>(fast.sent) / (fast.backward_s / 2);
  const Measured on = measure(files, true, rate), off = measure(files, false, rate);
  const auto share = [](const Measured& m) { return m.data.exposed.count / m.data.under_way.count; };
  fmt::print(
      "backward {:.1f} ms, link busy {:.1f} ms a step; overlap: exposed {:.1f} of {:.1f} ms ({:.1f} %); "
      "without: {:.1f} of {:.1f} ms ({:.1f} %)\n",
      fast.backward_s * 1e3, fast.backward_s * 500, on.data.exposed.count * 1e3, on.data.under_way.count * 1e3,
      share(on) * 100, off.data.exposed.count * 1e3, off.data.under_way.count * 1e3, share(off) * 100);
  EXPECT_GE(on.data.under_way.count, 0.99 * fast.backward_s / 2);
  EXPECT_LE(share(on), 0.2);
  EXPECT_GE(share(off), 0.95);
  EXPECT_GE(off.data.exposed.count, 0.99 * fast.backward_s / 2);
  EXPECT_EQ(on.norm, off.norm);
  EXPECT_EQ(on.norm, fast.norm);
}

}  // namespace
}  // namespace trireme::testing
