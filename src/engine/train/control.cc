#include "engine/train/control.h"

#include <map>
#include <numeric>

#include "base/json.h"

namespace trireme::train {
namespace {

std::unique_ptr<comm::Communicator> all_ranks(int rank, int ranks, const comm::CommunicatorFactory& factory) {
  constexpr const char* kAxis = "all ranks";
  if (ranks == 1) return comm::make_self_communicator(kAxis, rank);
  comm::GroupName name{kAxis, std::vector<int>(static_cast<std::size_t>(ranks))};
  std::iota(name.ranks.begin(), name.ranks.end(), 0);
  return factory(name, {});  // it reduces nothing
}

// Texts travel in 4-byte words: the length in bytes, then the bytes, padded with zeros.
std::vector<std::int32_t> words_of(const std::string& text) {
  std::vector<std::int32_t> words((text.size() + 3) / 4);
  std::copy(text.begin(), text.end(), reinterpret_cast<char*>(words.data()));
  return words;
}

double now() { return comm::on_the_clock(comm::Clock::now()).count; }
constexpr int kClockRounds = 16;

template <class T>
std::byte* bytes_of(std::vector<T>& values) {
  return reinterpret_cast<std::byte*>(values.data());
}

}  // namespace

Control::Control(int rank, int ranks, const comm::CommunicatorFactory& factory)
    : group_(all_ranks(rank, ranks, factory)) {}

std::int64_t Control::decide(std::int64_t leaders_word) {
  group_->broadcast(Stream{}, reinterpret_cast<std::byte*>(&leaders_word), 1, DType::kI64, 0)->wait();
  return leaders_word;
}

std::vector<std::string> Control::gather(const std::string& text) {
  std::vector<std::int32_t> words = words_of(text);
  std::int64_t size = static_cast<std::int64_t>(text.size());
  if (!leads()) {
    group_->send(Stream{}, reinterpret_cast<std::byte*>(&size), 1, DType::kI64, 0)->wait();
    group_->send(Stream{}, bytes_of(words), std::ssize(words), DType::kI32, 0)->wait();
    return {};
  }
  std::vector<std::string> all{text};
  for (int rank = 1; rank < ranks(); ++rank) {
    group_->receive(Stream{}, reinterpret_cast<std::byte*>(&size), 1, DType::kI64, rank)->wait();
    words.assign(static_cast<std::size_t>((size + 3) / 4), 0);
    group_->receive(Stream{}, bytes_of(words), std::ssize(words), DType::kI32, rank)->wait();
    all.emplace_back(reinterpret_cast<const char*>(words.data()), static_cast<std::size_t>(size));
  }
  return all;
}

std::vector<std::string> Control::share(const std::string& text) {
  const std::vector<std::string> gathered = gather(text);
  if (ranks() == 1) return gathered;
  Json list = Json::array();
  for (const std::string& one : gathered) list.push_back(one);
  std::string joined = list.dump();
  const std::int64_t size = decide(std::ssize(joined));
  joined.resize(static_cast<std::size_t>(size));
  std::vector<std::int32_t> words = words_of(joined);
  group_->broadcast(Stream{}, bytes_of(words), std::ssize(words), DType::kI32, 0)->wait();
  joined.assign(reinterpret_cast<const char*>(words.data()), static_cast<std::size_t>(size));
  std::vector<std::string> all;
  const Json parsed = parse_json(joined, "what ranks share").or_throw();
  for (const Json& one : parsed.as_array()) all.push_back(one.as_string());
  return all;
}

telemetry::ClockOffset Control::clock_of(int rank) {
  telemetry::ClockOffset best{.offset = {}, .round_trip = {}, .estimated = true};
  for (int round = 0; round < kClockRounds; ++round) {
    double theirs = 0.0;
    auto* data = reinterpret_cast<std::byte*>(&theirs);
    const double sent = now();
    group_->send(Stream{}, data, 1, DType::kF64, rank)->wait();
    group_->receive(Stream{}, data, 1, DType::kF64, rank)->wait();
    const double received = now();
    if (round > 0 && received - sent >= best.round_trip.count) continue;
    best.round_trip = {received - sent};
    best.offset = {sent + (received - sent) / 2 - theirs};
  }
  return best;
}

void Control::answer_clock() {
  for (int round = 0; round < kClockRounds; ++round) {
    double word = 0.0;
    auto* data = reinterpret_cast<std::byte*>(&word);
    group_->receive(Stream{}, data, 1, DType::kF64, 0)->wait();
    word = now();
    group_->send(Stream{}, data, 1, DType::kF64, 0)->wait();
  }
}

std::vector<telemetry::ClockOffset> Control::clocks(const std::vector<std::string>& hosts) {
  std::map<std::string, telemetry::ClockOffset> by_host{{hosts.front(), {}}};
  for (int rank = 1; rank < ranks(); ++rank) {
    const auto [entry, first_of_host] = by_host.try_emplace(hosts[static_cast<std::size_t>(rank)]);
    if (!first_of_host) continue;
    if (leads()) entry->second = clock_of(rank);
    if (rank == this->rank()) answer_clock();
  }
  std::vector<telemetry::ClockOffset> all;
  if (!leads()) return all;
  for (const std::string& host : hosts) all.push_back(by_host.at(host));
  return all;
}

void Control::send_to_leader(std::span<const float> values) {
  group_->send(Stream{}, reinterpret_cast<const std::byte*>(values.data()), std::ssize(values), DType::kF32, 0)->wait();
}

void Control::receive_from(int rank, std::span<float> values) {
  group_->receive(Stream{}, reinterpret_cast<std::byte*>(values.data()), std::ssize(values), DType::kF32, rank)->wait();
}

}  // namespace trireme::train
