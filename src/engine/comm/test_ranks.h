#pragma once

// What tests of communicators share: one function on a thread for each rank, groups, data.

#include <deque>
#include <exception>
#include <functional>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "engine/comm/communicator.h"

namespace trireme::comm {

struct RankOutcome {
  bool failed = false;
  ExitCode code = ExitCode::kDone;
  std::string message;
};

inline std::vector<RankOutcome> run_ranks(int ranks, const std::function<void(int)>& body) {
  std::vector<RankOutcome> outcomes(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  threads.reserve(outcomes.size());
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      RankOutcome& outcome = outcomes[static_cast<std::size_t>(rank)];
      try {
        body(rank);
      } catch (const Error& error) {
        outcome = {true, error.code(), error.what()};
      } catch (const std::exception& error) {
        outcome = {true, ExitCode::kInternal, error.what()};
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

// All ranks of a world.
inline GroupName everybody(int ranks, const std::string& axis = "data") {
  GroupName name{axis, std::vector<int>(static_cast<std::size_t>(ranks))};
  std::iota(name.ranks.begin(), name.ranks.end(), 0);
  return name;
}

// Memory that lives as long as the calling thread.
inline std::span<std::byte> test_memory(Bytes bytes) {
  thread_local std::deque<std::vector<std::byte>> kept;
  return kept.emplace_back(static_cast<std::size_t>(bytes.count));
}

template <class T>
std::byte* bytes_of(std::vector<T>& values) {
  return reinterpret_cast<std::byte*>(values.data());
}

}  // namespace trireme::comm
