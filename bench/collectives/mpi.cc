// The mode under mpirun. MPI's own collectives are called here and nowhere else.

#include "engine/comm/mpi.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <fmt/core.h>
#include <mpi.h>

#include "base/env.h"
#include "collectives/our_ways.h"
#include "collectives/rounds.h"

namespace trireme::bench {
namespace {

comm::Launch launch() {
  return comm::launch_of([](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  });
}

// Errors of the library end the process: its own handler was replaced by MpiWorld.
void check(int result) {
  if (result != MPI_SUCCESS) MPI_Abort(MPI_COMM_WORLD, 1);
}

// A barrier whose ranks sleep, while rank 0 measures.
void sleep_until_all_come() {
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Ibarrier(MPI_COMM_WORLD, &request));
  int is_complete = 0;
  while (is_complete == 0) {
    check(MPI_Test(&request, &is_complete, MPI_STATUS_IGNORE));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void meet() { check(MPI_Barrier(MPI_COMM_WORLD)); }

std::vector<Way> library_ways(Kind kind, std::vector<float>& buffer, std::vector<float>& other, int rank, int ranks) {
  float* const data = buffer.data();
  float* const to = other.data();
  const int count = static_cast<int>(buffer.size());
  const int share = count / ranks;
  switch (kind) {
    case Kind::kAllReduce:
      return {{meet, [=] { check(MPI_Allreduce(MPI_IN_PLACE, data, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD)); }},
              {meet, [=] { check(MPI_Allreduce(data, to, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD)); }}};
    case Kind::kAllGather:
      return {{meet, [=] { check(MPI_Allgather(MPI_IN_PLACE, 0, MPI_FLOAT, data, share, MPI_FLOAT, MPI_COMM_WORLD)); }},
              {meet, [=] {
                 check(MPI_Allgather(data + rank * share, share, MPI_FLOAT, to, share, MPI_FLOAT, MPI_COMM_WORLD));
               }}};
    case Kind::kReduceScatter:
      return {{meet,
               [=] { check(MPI_Reduce_scatter_block(MPI_IN_PLACE, data, share, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD)); }},
              {meet, [=] { check(MPI_Reduce_scatter_block(data, to, share, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD)); }}};
  }
  return {};
}

// The median over the rounds, of the slowest rank.
double time_of(std::vector<double> rounds) {
  check(
      MPI_Allreduce(MPI_IN_PLACE, rounds.data(), static_cast<int>(rounds.size()), MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD));
  return median(std::move(rounds));
}

}  // namespace

Result run_mpi(const Plan& plan, int& rank, int& ranks) {
  comm::MpiOptions options;
  options.messages.deadline = Seconds{300};
  if (plan.segment > 0) options.messages.segments.segment = Bytes{plan.segment};
  if (plan.window > 0) options.messages.segments.window = plan.window;
  if (plan.direct_window > 0) options.messages.direct_window = plan.direct_window;
  options.end_process = [](ExitCode code, const std::string& message) {
    fmt::print(stderr, "{}\n", message);
    std::_Exit(static_cast<int>(code));
  };
  comm::MpiWorld world(launch(), posix_env(), options);
  rank = world.rank();
  ranks = world.size();
  comm::GroupName name{"data", {}};
  for (int r = 0; r < ranks; ++r) name.ranks.push_back(r);
  const std::int64_t longest = *std::max_element(plan.sizes.begin(), plan.sizes.end()) / 4;
  std::vector<std::byte> staging(static_cast<std::size_t>(
      message_staging_bytes(longest, 4, ranks, options.messages.segments, options.messages.staged_operations).count));
  const auto communicator = world.make_communicator(name, {.staging = staging});

  Result result;
  if (rank == 0) result.copies = measure_copies();
  sleep_until_all_come();
  for (const std::int64_t bytes : plan.sizes) {
    const auto elements = static_cast<std::size_t>(bytes / 4 / ranks * ranks);
    std::vector<float> buffer(elements);
    std::vector<float> other(elements);
    for (const Kind kind : plan.kinds) {
      std::vector<Way> ways = library_ways(kind, buffer, other, rank, ranks);
      ways.push_back(our_way(*communicator, buffer, kind));
      const auto times = take_turns(ways, plan.rounds, repeats_of(bytes));
      result.rows.push_back({.kind = kind,
                             .bytes = bytes,
                             .ours_s = time_of(times[2]),
                             .library_s = std::min(time_of(times[0]), time_of(times[1]))});
    }
  }
  if (rank == 0) result.copies = better_of(result.copies, measure_copies());
  sleep_until_all_come();
  world.shut_down();
  return result;
}

}  // namespace trireme::bench
