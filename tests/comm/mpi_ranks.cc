// What one rank does in the tests of MpiWorld: mpi_ranks CASE, under mpirun (mpi_outcome.py). Exit code: the Error's,
// or 1 if a result is wrong.

#include <signal.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "base/env.h"
#include "base/error.h"
#include "base/random.h"
#include "engine/comm/mpi.h"
#include "engine/comm/reduce.h"
#include "engine/comm/test_ranks.h"

namespace trireme::comm {
namespace {

[[noreturn]] void end_process(ExitCode code, const std::string& message) {
  fmt::print(stderr, "{}\n", message);
  std::fflush(stderr);
  std::_Exit(static_cast<int>(code));
}

void expect(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error("wrong: " + what);
}

Launch environment_launch() {
  return launch_of([](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  });
}

// Numbers whose sum depends on its order. Signed zeros and large differences of size are among them.
template <class T>
std::vector<T> values_of(int member, std::int64_t count) {
  std::vector<T> values(static_cast<std::size_t>(count));
  const RandomKey key{3, static_cast<std::uint64_t>(member)};
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint32_t bits = random_bits(key, i);
    const double size = static_cast<double>(1ULL << (bits % 24));
    values[i] = static_cast<T>((static_cast<double>(bits) / 4294967296.0 - 0.5) * size);
  }
  return values;
}

template <class T>
class Case {
 public:
  Case(Communicator& communicator, DType dtype, std::int64_t count) : c_(communicator), dtype_(dtype), count_(count) {
    for (int member = 0; member < c_.size(); ++member) all_.push_back(values_of<T>(member, count));
  }

  void run() {
    const auto sum = reduced(Reduction::kSum);
    check("all-reduce (sum)", sum,
          [&](std::byte* data) { return c_.all_reduce({}, data, count_, dtype_, Reduction::kSum); });
    if (dtype_ == DType::kF32 || dtype_ == DType::kF64) {
      check("all-reduce (maximum)", reduced(Reduction::kMax),
            [&](std::byte* data) { return c_.all_reduce({}, data, count_, dtype_, Reduction::kMax); });
    }
    auto scattered = own();
    copy(sum, scattered, c_.index());
    check("reduce-scatter", scattered, [&](std::byte* data) { return c_.reduce_scatter({}, data, count_, dtype_); });
    auto gathered = own();
    for (int member = 0; member < c_.size(); ++member) copy(all_[static_cast<std::size_t>(member)], gathered, member);
    check("all-gather", gathered, [&](std::byte* data) { return c_.all_gather({}, data, count_, dtype_); });
    for (int root = 0; root < c_.size(); ++root) {
      check("broadcast", all_[static_cast<std::size_t>(root)],
            [&](std::byte* data) { return c_.broadcast({}, data, count_, dtype_, root); });
    }
    pass_on();
  }

 private:
  std::vector<T> own() const { return all_[static_cast<std::size_t>(c_.index())]; }
  std::vector<T> reduced(Reduction reduction) {
    std::vector<const std::byte*> sources;
    for (auto& values : all_) sources.push_back(bytes_of(values));
    std::vector<T> result(static_cast<std::size_t>(count_));
    reduce_in_order(dtype_, reduction, sources, bytes_of(result), {0, count_});
    return result;
  }
  void copy(const std::vector<T>& from, std::vector<T>& to, int member) const {
    const Share share = share_of(count_, member, c_.size());
    std::copy(from.begin() + share.begin, from.begin() + share.end, to.begin() + share.begin);
  }
  template <class Start>
  void check(const std::string& operation, const std::vector<T>& expected, const Start& start) {
    std::vector<T> values = own();
    start(bytes_of(values))->wait();
    expect(std::memcmp(values.data(), expected.data(), values.size() * sizeof(T)) == 0 || count_ == 0,
           fmt::format("{} of {} {}", operation, count_, dtype_name(dtype_)));
  }
  // To the next rank of the group, from the previous one: everybody sends first.
  void pass_on() {
    if (c_.size() == 1) return;
    const int previous = (c_.index() + c_.size() - 1) % c_.size();
    std::vector<T> mine = own();
    std::vector<T> theirs(mine.size());
    const auto sent = c_.send({}, bytes_of(mine), count_, dtype_, (c_.index() + 1) % c_.size());
    c_.receive({}, bytes_of(theirs), count_, dtype_, previous)->wait();
    expect(theirs == all_[static_cast<std::size_t>(previous)], "message");
  }

  Communicator& c_;
  DType dtype_;
  std::int64_t count_;
  std::vector<std::vector<T>> all_;  // by member
};

void run_collectives(Communicator& communicator) {
  for (const std::int64_t count : {0, 1, 5, 1000, 1000000, 1000003}) {
    Case<float>(communicator, DType::kF32, count).run();
    Case<double>(communicator, DType::kF64, count).run();
    Case<std::int32_t>(communicator, DType::kI32, count).run();
    Case<std::int64_t>(communicator, DType::kI64, count).run();
    communicator.barrier();
  }
}

std::unique_ptr<Communicator> make(MpiWorld& world, const GroupName& name) {
  const MessageOptions options;
  return world.make_communicator(
      name, {.staging = test_memory(message_staging_bytes(1 << 20, 8, static_cast<int>(name.ranks.size()),
                                                          options.segments, options.staged_operations))});
}

// Four ranks as 2 x 2, with operations of both groups and of the whole under way at once.
void run_groups(MpiWorld& world) {
  const int rank = world.rank();
  const int first = rank / 2 * 2;
  const auto tensor = make(world, {"tensor", {first, first + 1}});
  const auto data = make(world, {"data", {rank % 2, rank % 2 + 2}});
  const auto all = make(world, {"world", {3, 1, 0, 2}});
  run_collectives(*all);
  constexpr std::int64_t kCount = 300000;
  for (int round = 0; round < 10; ++round) {
    std::vector<std::int64_t> a(kCount, rank);
    std::vector<std::int64_t> b(kCount, 10 * rank);
    std::vector<std::int64_t> c(kCount, 100 * rank);
    std::vector<std::int64_t> d(kCount, 7 * rank);
    const auto start = [&](Communicator& communicator, std::vector<std::int64_t>& values) {
      return communicator.all_reduce({}, bytes_of(values), kCount, DType::kI64, Reduction::kSum);
    };
    const auto on_tensor = start(*tensor, a);
    const auto on_data = start(*data, b);
    const auto on_all = start(*all, c);
    const auto further = start(*all, d);
    if (rank % 2 == 0) further->wait();
    while (!on_data->done()) data->progress();
    on_all->wait();
    on_tensor->wait();
    further->wait();
    const auto is_all = [](const std::vector<std::int64_t>& values, std::int64_t value) {
      return values == std::vector<std::int64_t>(kCount, value);
    };
    expect(is_all(a, 2 * first + 1), "sum over tensor");
    expect(is_all(b, 10 * (2 * (rank % 2) + 2)), "sum over data");
    expect(is_all(c, 600) && is_all(d, 42), "sum over the world");
  }
}

// The MPI library's own sums: integers, maxima and two ranks as ours; floats of more ranks near them, and the same on
// every rank.
template <class T>
void run_library_floats(Communicator& c, DType dtype, std::int64_t count, double tolerance) {
  std::vector<double> expected(static_cast<std::size_t>(count));
  for (int member = 0; member < c.size(); ++member) {
    const std::vector<T> values = values_of<T>(member, count);
    for (std::size_t i = 0; i < values.size(); ++i) expected[i] += static_cast<double>(values[i]);
  }
  std::vector<T> sum = values_of<T>(c.index(), count);
  c.all_reduce({}, bytes_of(sum), count, dtype, Reduction::kSum)->wait();
  for (std::size_t i = 0; i < sum.size(); ++i) {
    expect(std::abs(static_cast<double>(sum[i]) - expected[i]) <= tolerance * (1 << 23), "the library's sum");
  }
  std::vector<T> first = sum;
  c.broadcast({}, bytes_of(first), count, dtype, 0)->wait();
  expect(count == 0 || std::memcmp(first.data(), sum.data(), sum.size() * sizeof(T)) == 0, "the same on every rank");
}

void run_library(Communicator& communicator) {
  for (const std::int64_t count : {0, 1, 5, 1000, 1000003}) {
    Case<std::int32_t>(communicator, DType::kI32, count).run();
    Case<std::int64_t>(communicator, DType::kI64, count).run();
    if (communicator.size() <= 2) {
      Case<float>(communicator, DType::kF32, count).run();
      Case<double>(communicator, DType::kF64, count).run();
    } else {
      run_library_floats<float>(communicator, DType::kF32, count, 1e-6);
      run_library_floats<double>(communicator, DType::kF64, count, 1e-15);
    }
    communicator.barrier();
  }
}

// Its sums over rows and columns of 2 x 2 ranks, and our own ones, under way at once.
void run_library_groups(MpiWorld& world) {
  const int rank = world.rank();
  const int first = rank / 2 * 2;
  const auto rows = world.make_communicator({"data", {first, first + 1}}, {.library_sums = true});
  const auto columns = world.make_communicator({"data", {rank % 2 + 2, rank % 2}}, {.library_sums = true});
  const auto all = make(world, {"world", {3, 1, 0, 2}});
  run_library(*rows);
  run_library(*columns);
  constexpr std::int64_t kCount = 300000;
  for (int round = 0; round < 10; ++round) {
    std::vector<std::int64_t> a(kCount, rank), b(kCount, rank), c(kCount, rank);
    const auto start = [&](Communicator& communicator, std::vector<std::int64_t>& values) {
      return communicator.all_reduce({}, bytes_of(values), kCount, DType::kI64, Reduction::kSum);
    };
    const auto on_rows = start(*rows, a);
    const auto on_all = start(*all, b);
    const auto on_columns = start(*columns, c);
    if (rank % 2 == 0) on_columns->wait();
    while (!on_all->done()) rows->progress();
    on_rows->wait();
    on_columns->wait();
    expect(a == std::vector<std::int64_t>(kCount, 2 * first + 1), "the library's sum over rows");
    expect(b == std::vector<std::int64_t>(kCount, 6), "our sum");
    expect(c == std::vector<std::int64_t>(kCount, 2 * (rank % 2) + 2), "the library's sum over columns");
  }
}

void sum_of_five(Communicator& communicator) {
  std::vector<float> values(5);
  communicator.all_reduce({}, bytes_of(values), 5, DType::kF32, Reduction::kSum)->wait();
}

// A rank that is absent, but alive: what the others see of it is nothing.
void stay_away() { std::this_thread::sleep_for(std::chrono::seconds(30)); }

void run_library_case(const std::string& name, MpiWorld& world) {
  const int rank = world.rank();
  if (name == "library_late_group") {
    world.set_deadline(Seconds{1});
    if (rank == 1) return stay_away();
  }
  const auto c = world.make_communicator(everybody(world.size()), {.library_sums = true});
  if (name == "library") return run_library(*c);
  sum_of_five(*c);
  world.set_deadline(Seconds{1});
  if (name == "library_missing" && rank == 1) return stay_away();
  try {
    sum_of_five(*c);
  } catch (const Error& error) {
    fmt::print(stderr, "rank {}: {}\n", rank, error.what());
    sum_of_five(*c);  // refuses
  }
}

void run_case(const std::string& name, MpiWorld& world) {
  const int rank = world.rank();
  const int size = world.size();
  fmt::print(stderr, "rank {} of {}\n", rank, world.text());
  if (name == "groups") return run_groups(world);
  if (name == "library_groups") return run_library_groups(world);
  if (name.starts_with("library")) return run_library_case(name, world);
  const auto communicator = make(world, everybody(size));
  if (name == "collectives") return run_collectives(*communicator);
  if (name == "missing") return rank == 1 ? stay_away() : sum_of_five(*communicator);
  if (name == "set_deadline") {  // of 20 s before
    sum_of_five(*communicator);
    world.set_deadline(Seconds{1});
    return rank == 1 ? stay_away() : sum_of_five(*communicator);
  }
  if (name == "killed") {
    communicator->barrier();
    if (rank == 1) raise(SIGKILL);
    return communicator->barrier();
  }
  if (name == "failed") {
    if (rank == 2) throw Error(ExitCode::kRankLost, "train", "the step", "NaN in the loss");
    return sum_of_five(*communicator);
  }
  if (name == "wrong_length") {
    std::vector<double> values(5 * size);
    communicator->broadcast({}, bytes_of(values), 5, DType::kF64, 0)->wait();
    return communicator->barrier();
  }
  if (name.starts_with("wrong_")) return sum_of_five(*communicator);
  throw std::runtime_error("no such case: " + name);
}

MpiOptions options_of(const std::string& name, const Launch& launch) {
  MpiOptions options;
  options.messages.deadline = name == "missing" ? Seconds{1} : Seconds{20};
  options.end_process = end_process;
  const bool is_first =
      std::getenv("OMPI_COMM_WORLD_RANK") == nullptr || std::string(std::getenv("OMPI_COMM_WORLD_RANK")) == "0";
  if (name == "late_start") {
    options.start_deadline = Seconds{2};
    if (!is_first && launch.ranks > 1) stay_away();
  }
  if (!is_first) return options;
  if (name == "library_wrong_count") {
    options.before_send = [sums = 0](int& to, std::int64_t& count) mutable {
      if (to == -1 && ++sums == 2) count = -1;
    };
  }
  if (name == "wrong_rank") options.before_send = [](int& to, std::int64_t&) { to = to == 1 ? 99 : to; };
  if (name == "wrong_count") options.before_send = [](int&, std::int64_t& bytes) { bytes = -1; };
  if (name == "wrong_length") options.before_send = [](int&, std::int64_t& bytes) { bytes = bytes == 40 ? 39 : bytes; };
  return options;
}

int run(const std::string& name) {
  try {
    Launch launch = environment_launch();
    if (name == "wrong_launcher") launch = {"srun", 4};
    MpiWorld world(launch, posix_env(), options_of(name, launch));
    try {
      run_case(name, world);
      world.shut_down();
      return 0;
    } catch (const Error& error) {
      fmt::print(stderr, "rank {}: {}\n", world.rank(), error.what());
      world.report_lost(name == "failed" ? "NaN in the loss" : error.what());
      return static_cast<int>(error.code());
    } catch (const std::exception& error) {
      fmt::print(stderr, "rank {}: {}\n", world.rank(), error.what());
      world.report_lost(error.what());
      return 1;
    }
  } catch (const Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return static_cast<int>(error.code());
  }
}

}  // namespace
}  // namespace trireme::comm

int main(int argument_count, char** arguments) { return trireme::comm::run(argument_count == 2 ? arguments[1] : ""); }
