#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/error.h"
#include "base/wait_clock.h"
#include "engine/comm/mpi.h"
#include "engine/comm/mpi_library.h"
#include "engine/comm/mpi_library_collectives.h"

namespace trireme::comm {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks{250};  // at the clock

// Ends the process if it is not destroyed in time.
class Watchdog {
 public:
  Watchdog(const MpiOptions& options, Seconds deadline, const std::string& operation)
      : thread_([this, &options, deadline, operation] {
          std::unique_lock lock(mutex_);
          WaitClock clock(on_the_clock(Clock::now()));
          while (clock.look(on_the_clock(Clock::now())) < deadline) {
            if (changed_.wait_for(lock, kBetweenLooks, [&] { return called_off_; })) return;
          }
          options.end_process(ExitCode::kHang, fmt::format("comm: {}: waited {}; not all ranks have come", operation,
                                                           format_seconds(deadline)));
        }) {}
  ~Watchdog() {
    {
      const std::lock_guard lock(mutex_);
      called_off_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool called_off_ = false;
  std::thread thread_;  // last: it uses the others
};

template <class Work>
void watched(const MpiOptions& options, Seconds deadline, const std::string& operation, const Work& work) {
  const Watchdog watchdog(options, deadline, operation);
  try {
    work();
  } catch (const TransportError& error) {
    throw Error(error.code(), "comm", operation, error.what());
  }
}

}  // namespace

MpiWorld::MpiWorld(const Launch& launch, Env& env, MpiOptions options) : options_(std::move(options)), launch_(launch) {
  TRIREME_CHECK(options_.end_process != nullptr);
  watched(options_, options_.start_deadline, "the start of MPI", [&] { library_ = start_mpi(options_.before_send); });
  if (launch_.launcher != "none" && launch_.ranks != library_->size()) {
    throw Error(ExitCode::kUsage, "comm", "the start of MPI",
                fmt::format("{} says that it has started {} ranks, but {} sees {}", launch_.launcher, launch_.ranks,
                            library_->version(), library_->size()),
                "the MPI library does not know this launcher: use its own mpirun, or srun --mpi=pmix");
  }
  world_ = std::make_shared<MessageWorld>(library_, env, options_.messages);
}

MpiWorld::~MpiWorld() {
  if (!ended_) world_->report_lost("it ended without a shut-down");
}

int MpiWorld::rank() const { return library_->rank(); }
int MpiWorld::size() const { return library_->size(); }

std::string MpiWorld::text() const {
  const std::string ranks = size() == 1 ? "1 rank" : fmt::format("{} ranks", size());
  const std::string launcher = launch_.launcher != "none" ? launch_.launcher
                               : size() > 1               ? "an unknown launcher"
                                                          : "hand";
  return fmt::format("{} started by {} ({})", ranks, launcher, library_->version());
}

std::unique_ptr<Communicator> MpiWorld::make_communicator(const GroupName& name, const GroupOptions& options) {
  std::unique_ptr<Communicator> communicator = MessageWorld::make_communicator(world_, name, options.staging);
  if (!options.library_sums || communicator->size() == 1) return communicator;
  MpiLibrary::Group group = 0;
  watched(options_, world_->options().deadline, "making a group over " + name.axis,
          [&] { group = library_->make_group(name.ranks); });
  return make_library_communicator(std::move(communicator), world_, library_, group);
}

void MpiWorld::set_deadline(Seconds deadline) { world_->set_deadline(deadline); }

void MpiWorld::report_lost(const std::string& reason) { world_->report_lost(reason); }

void MpiWorld::shut_down() {
  world_->close();
  ended_ = true;
  watched(options_, world_->options().deadline, "the end of MPI", [&] { library_->end(); });
}

}  // namespace trireme::comm
