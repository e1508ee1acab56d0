// Speed of collectives: our threads, and our messages over MPI beside the MPI library's own collectives.
//   bench_collectives threads N [options]
//   mpirun -n N bench_collectives mpi [options]
// Options: --json --rounds N --size BYTES --operation NAME; of our MPI backend (MessageOptions): --segment BYTES
// --window N --direct-window N. Sizes are of each rank's buffer (4 KiB to 256 MiB of float32), operations in place.
// Figures are medians of the rounds, of the slowest rank; the library's is its better of in place and from one buffer
// to another. collectives.py runs all.

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <fmt/core.h>

#include "collectives/our_ways.h"
#include "collectives/rounds.h"
#include "engine/comm/threads.h"

namespace trireme::bench {

Result run_threads(int ranks, const Plan& plan) {
  Result result{.copies = measure_copies(), .rows = {}};
  comm::ThreadWorld world(ranks, Seconds{300});
  std::vector<std::vector<std::vector<double>>> times(static_cast<std::size_t>(ranks));  // by rank, row, round
  const auto run_rank = [&](int rank) {
    comm::GroupName name{"data", {}};
    for (int r = 0; r < ranks; ++r) name.ranks.push_back(r);
    const auto communicator = world.make_communicator(name, rank);
    for (const std::int64_t bytes : plan.sizes) {
      std::vector<float> buffer(static_cast<std::size_t>(bytes / 4));
      for (const Kind kind : plan.kinds) {
        const Way way = our_way(*communicator, buffer, kind);
        times[static_cast<std::size_t>(rank)].push_back(take_turns({way}, plan.rounds, repeats_of(bytes)).front());
      }
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(run_rank, rank);
  for (std::thread& thread : threads) thread.join();
  result.copies = better_of(result.copies, measure_copies());

  std::size_t row = 0;
  for (const std::int64_t bytes : plan.sizes) {
    for (const Kind kind : plan.kinds) {
      std::vector<double> slowest = times[0][row];
      for (const auto& of_rank : times) {
        for (std::size_t i = 0; i < slowest.size(); ++i) slowest[i] = std::max(slowest[i], of_rank[row][i]);
      }
      result.rows.push_back({.kind = kind, .bytes = bytes, .ours_s = median(slowest)});
      ++row;
    }
  }
  return result;
}

namespace {

std::int64_t number_of(const std::string& text) {
  char* end = nullptr;
  const std::int64_t number = std::strtoll(text.c_str(), &end, 10);
  if (text.empty() || *end != '\0' || number <= 0) throw std::runtime_error("not a number above 0: " + text);
  return number;
}

int run(const std::vector<std::string>& arguments) {
  Plan plan;
  bool json = false;
  std::vector<std::string> words;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const auto next = [&] {
      if (i + 1 == arguments.size()) throw std::runtime_error(arguments[i] + " without a value");
      return arguments[++i];
    };
    const auto value = [&] { return number_of(next()); };
    if (arguments[i] == "--json") {
      json = true;
    } else if (arguments[i] == "--rounds") {
      plan.rounds = static_cast<int>(value());
    } else if (arguments[i] == "--operation") {
      const std::string name = next();
      std::erase_if(plan.kinds, [&](Kind kind) { return name_of(kind) != name; });
      if (plan.kinds.empty()) throw std::runtime_error("none of all-reduce, all-gather, reduce-scatter: " + name);
    } else if (arguments[i] == "--size") {
      plan.sizes = {value()};
    } else if (arguments[i] == "--segment") {
      plan.segment = value();
    } else if (arguments[i] == "--window") {
      plan.window = static_cast<int>(value());
    } else if (arguments[i] == "--direct-window") {
      plan.direct_window = static_cast<int>(value());
    } else {
      words.push_back(arguments[i]);
    }
  }
  int ranks = 0;
  int rank = 0;
  Result result;
  if (words.size() == 2 && words[0] == "threads") {
    ranks = static_cast<int>(number_of(words[1]));
    result = run_threads(ranks, plan);
  } else if (words.size() == 1 && words[0] == "mpi") {
    result = run_mpi(plan, rank, ranks);
  } else {
    throw std::runtime_error("usage: bench_collectives threads N, or mpirun -n N bench_collectives mpi");
  }
  const auto text = json ? json_of : table_of;
  if (rank == 0) fmt::print("{}", text(words[0], ranks, result.copies, result.rows));
  return 0;
}

}  // namespace
}  // namespace trireme::bench

int main(int argument_count, char** arguments) {
  try {
    return trireme::bench::run({arguments + 1, arguments + argument_count});
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 2;
  }
}
