#include "engine/train/run_world.h"

#include <exception>
#include <mutex>
#include <numeric>
#include <thread>

#include <fmt/format.h>

#include "base/check.h"
#include "engine/comm/threads.h"

namespace trireme::train {
namespace {

class ThreadRunWorld : public RunWorld {
 public:
  ThreadRunWorld(int ranks, Seconds deadline) : ranks_(ranks), world_(ranks, deadline) {}

  int ranks() const override { return ranks_; }
  std::vector<int> own_ranks() const override {
    std::vector<int> all(static_cast<std::size_t>(ranks_));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
  std::string text() const override {
    return ranks_ == 1 ? "1 rank, this process" : fmt::format("{} ranks as threads of this process", ranks_);
  }
  plan::Backend backend() const override { return plan::Backend::kThreads; }
  comm::CommunicatorFactory factory(int rank) override {
    return [this, rank](const comm::GroupName& name, const comm::GroupOptions& options) {
      TRIREME_CHECK(!options.library_sums, "threads have no communication library");
      return world_.make_communicator(name, rank);
    };
  }
  void set_deadline(Seconds deadline) override { world_.set_deadline(deadline); }
  void report_lost(int rank, const std::string& reason) override { world_.report_lost(rank, reason); }
  void shut_down() override {}

 private:
  int ranks_;
  comm::ThreadWorld world_;
};

}  // namespace

std::unique_ptr<RunWorld> make_thread_run_world(int ranks, Seconds deadline) {
  return std::make_unique<ThreadRunWorld>(ranks, deadline);
}

void run_ranks(RunWorld& world, const std::function<void(int)>& body) {
  std::mutex mutex;
  std::exception_ptr first;
  const auto guarded = [&](int rank) {
    try {
      body(rank);
    } catch (const std::exception& error) {
      {
        const std::lock_guard lock(mutex);
        if (!first) first = std::current_exception();
      }
      world.report_lost(rank, error.what());
    }
  };
  const std::vector<int> own = world.own_ranks();
  std::vector<std::thread> threads;
  for (std::size_t i = 1; i < own.size(); ++i) threads.emplace_back(guarded, own[i]);
  guarded(own.front());
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace trireme::train
