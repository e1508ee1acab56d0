#pragma once

// What the modes of bench_collectives share: sizes, rounds that alternate, the limit of memory, the table.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace trireme::bench {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

enum class Kind { kAllReduce, kAllGather, kReduceScatter };

struct Plan {
  std::vector<Kind> kinds{Kind::kAllReduce, Kind::kAllGather, Kind::kReduceScatter};
  std::vector<std::int64_t> sizes{4 << 10, 1 << 20, 64 << 20, 256 << 20};  // bytes of a rank's buffer
  int rounds = 9;
  std::int64_t segment = 0;  // bytes; of our MPI backend; 0: its default
  int window = 0;
  int direct_window = 0;
};

// Operations of a round, one after the other: small ones are timed together.
inline int repeats_of(std::int64_t bytes) {
  return static_cast<int>(std::clamp<std::int64_t>((16 << 20) / bytes, 1, 400));
}

// One way to do an operation on this rank, timed beside others.
struct Way {
  std::function<void()> meet;  // a barrier
  std::function<void()> run;
};

// This rank's seconds of one run: for each way, those of each round. All ranks call it alike. Ways take turns, so that
// a busy machine slows all of them; the first round warms up and is not kept.
inline std::vector<std::vector<double>> take_turns(const std::vector<Way>& ways, int rounds, int repeats) {
  std::vector<std::vector<double>> times(ways.size());
  for (int round = -1; round < rounds; ++round) {
    for (std::size_t i = 0; i < ways.size(); ++i) {
      ways[i].meet();
      const Clock::time_point begin = Clock::now();
      for (int repeat = 0; repeat < repeats; ++repeat) ways[i].run();
      if (round >= 0) times[i].push_back(seconds_since(begin) / repeats);
    }
  }
  return times;
}

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Bytes a second that memcpy of 256 MiB copies, by one thread and by two that share it.
struct CopyRate {
  double one_thread = 0;
  double two_threads = 0;
};
// Measured before and after, the better of the two is the machine's: others may be busy on it.
CopyRate measure_copies();
inline CopyRate better_of(CopyRate a, CopyRate b) {
  return {std::max(a.one_thread, b.one_thread), std::max(a.two_threads, b.two_threads)};
}

struct Row {
  Kind kind = Kind::kAllReduce;
  std::int64_t bytes = 0;
  double ours_s = 0;
  double library_s = 0;  // 0: no library in this mode
};

const char* name_of(Kind kind);  // "all-reduce"

// The least time that memory allows an operation, once it is too large for the caches: each buffer's elements that are
// needed are read once, and those that change are written once. memcpy by two threads at c bytes/s reads c and writes
// c, so traffic runs at 2 c. Of n bytes and N ranks: all-reduce 2 N n; all-gather n read and (N - 1) n written;
// reduce-scatter N n read and n written. What is read and written in the caches' own way may do a little better.
double limit_s(Kind kind, std::int64_t bytes, int ranks, const CopyRate& copies);

std::string table_of(const std::string& mode, int ranks, const CopyRate& copies, const std::vector<Row>& rows);
std::string json_of(const std::string& mode, int ranks, const CopyRate& copies, const std::vector<Row>& rows);

struct Result {
  CopyRate copies;
  std::vector<Row> rows;
};
// In a process of `ranks` threads.
Result run_threads(int ranks, const Plan& plan);
// This process is a rank that mpirun has started. Rank 0 returns the result, others none. Refuses without MPI.
Result run_mpi(const Plan& plan, int& rank, int& ranks);

}  // namespace trireme::bench
