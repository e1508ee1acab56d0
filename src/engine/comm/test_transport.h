#pragma once

// A Transport in memory, for tests: ranks are threads of one process. It behaves as badly as it may: what is longer
// than an eager message is read from the sender's memory only when a receive has met it, and test() says no at random.

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/random.h"
#include "engine/comm/transport.h"

namespace trireme::comm {

class TestNetwork {
 public:
  explicit TestNetwork(int ranks) : ranks_(ranks) {}

 private:
  friend class TestTransport;
  static constexpr std::size_t kEager = 64;

  struct Letter {
    int from = 0;
    int tag = 0;
    std::span<const std::byte> data;
    std::vector<std::byte> copy;
    bool taken = false;
  };
  struct Box {
    int from = 0;
    int tag = 0;
    std::span<std::byte> data;
    bool filled = false;
    std::string failure;
  };

  static bool meet(const Letter& letter, const Box& box) {
    return letter.tag == box.tag && (box.from == Transport::kAnyRank || box.from == letter.from);
  }
  static void deliver(Letter& letter, Box& box) {
    if (letter.data.size() != box.data.size()) {
      box.failure = fmt::format("{} bytes came, {} were expected", letter.data.size(), box.data.size());
    } else if (!letter.data.empty()) {
      std::memcpy(box.data.data(), letter.data.data(), letter.data.size());
    }
    letter.taken = true;
    box.filled = true;
  }

  const int ranks_;
  std::mutex mutex_;
  std::map<int, std::deque<std::shared_ptr<Letter>>> letters_;  // by receiver
  std::map<int, std::deque<std::shared_ptr<Box>>> boxes_;
};

class TestTransport : public Transport {
 public:
  TestTransport(TestNetwork& network, int rank, int tag_limit = 32767)
      : network_(network), rank_(rank), tag_limit_(tag_limit) {}

  int rank() const override { return rank_; }
  int size() const override { return network_.ranks_; }
  int tag_limit() const override { return tag_limit_; }

  Ticket send(int to, int tag, std::span<const std::byte> data) override {
    if (sends_left == 0) throw TransportError(ExitCode::kRankLost, fmt::format("send to rank {}: no route", to));
    if (sends_left > 0) --sends_left;
    auto letter = std::make_shared<TestNetwork::Letter>();
    letter->from = rank_;
    letter->tag = tag;
    letter->data = data;
    if (data.size() <= TestNetwork::kEager) {
      letter->copy.assign(data.begin(), data.end());
      letter->data = letter->copy;
    }
    const std::lock_guard lock(network_.mutex_);
    auto& boxes = network_.boxes_[to];
    const auto box =
        std::find_if(boxes.begin(), boxes.end(), [&](const auto& b) { return TestNetwork::meet(*letter, *b); });
    if (box == boxes.end()) {
      network_.letters_[to].push_back(letter);
    } else {
      TestNetwork::deliver(*letter, **box);
      boxes.erase(box);
    }
    sends_[next_] = letter;
    return next_++;
  }

  Ticket receive(int from, int tag, std::span<std::byte> data) override {
    auto box = std::make_shared<TestNetwork::Box>();
    box->from = from;
    box->tag = tag;
    box->data = data;
    const std::lock_guard lock(network_.mutex_);
    auto& letters = network_.letters_[rank_];
    const auto letter =
        std::find_if(letters.begin(), letters.end(), [&](const auto& l) { return TestNetwork::meet(*l, *box); });
    if (letter == letters.end()) {
      network_.boxes_[rank_].push_back(box);
    } else {
      TestNetwork::deliver(**letter, *box);
      letters.erase(letter);
    }
    receives_[next_] = box;
    return next_++;
  }

  bool test(Ticket ticket) override {
    if (random_bits({7, static_cast<std::uint64_t>(rank_)}, tests_++) % 3 == 0) return false;
    const std::lock_guard lock(network_.mutex_);
    if (const auto send = sends_.find(ticket); send != sends_.end()) {
      if (send->second->copy.empty() && !send->second->data.empty() && !send->second->taken) return false;
      sends_.erase(send);
      return true;
    }
    const auto receive = receives_.find(ticket);
    if (!receive->second->filled) return false;
    const std::string failure = receive->second->failure;
    receives_.erase(receive);
    if (!failure.empty()) throw TransportError(ExitCode::kInternal, "test: " + failure);
    return true;
  }

  void cancel(Ticket ticket) override {
    const std::lock_guard lock(network_.mutex_);
    auto& boxes = network_.boxes_[rank_];
    boxes.erase(std::remove(boxes.begin(), boxes.end(), receives_.at(ticket)), boxes.end());
    receives_.erase(ticket);
  }

  void abandon() override {
    const std::lock_guard lock(network_.mutex_);
    for (auto& [to, letters] : network_.letters_) {
      std::erase_if(letters, [&](const auto& letter) { return letter->from == rank_ && letter->copy.empty(); });
    }
    network_.boxes_[rank_].clear();
  }

  std::int64_t sends_left = -1;  // then they fail; -1: never

 private:
  TestNetwork& network_;
  const int rank_;
  const int tag_limit_;
  Ticket next_ = 0;
  std::uint64_t tests_ = 0;
  std::map<Ticket, std::shared_ptr<TestNetwork::Letter>> sends_;
  std::map<Ticket, std::shared_ptr<TestNetwork::Box>> receives_;
};

}  // namespace trireme::comm
