#pragma once

// The last operations of a rank, for whoever asks why it is stuck: what it called last, on which group, and what has
// not ended. Memory is fixed; recording an operation is a lock and a copy of some hundred bytes.
//
// The owner's thread registers groups and records; any thread may read at any time (a supervisor asks a stuck rank).

#include <array>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/units.h"

namespace trireme::telemetry {

struct OperationRecord {
  // Which operation of its group, as this rank counts them, from 1. Members of a group that does collectives alone
  // agree on it: the one with the smallest number is who the others wait for.
  std::int64_t sequence = 0;
  std::string axis;
  std::vector<int> ranks;  // of the group, world ranks by index
  int instance = 0;        // which of this rank's groups over this axis and these ranks, from 0
  std::string operation;   // "all-reduce (sum) of 5 F32"
  Bytes bytes;             // of the buffer
  Seconds posted;          // on the steady clock
  std::optional<Seconds> completed = std::nullopt;  // absent: running, failed, or done and not looked at yet
};

class FlightRecorder {
 public:
  static constexpr std::size_t kTextLimit = 64;  // longer operation texts are cut

  // Keeps the last `capacity` operations.
  explicit FlightRecorder(int capacity);
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;

  // A group that operations will be of, and a member of this rank. Kept for good.
  int add_group(std::string axis, std::vector<int> ranks);

  using Handle = std::int64_t;
  Handle begin(int group, std::string_view operation, Bytes bytes, Seconds posted);
  // An operation that has made place for later ones meanwhile is let go.
  void end(Handle handle, Seconds when);

  // Oldest first.
  std::vector<OperationRecord> records() const;
  // A line for each, oldest first, for people. now: on the steady clock, for how long the unfinished ones have run.
  std::string text(Seconds now) const;

 private:
  struct Group {
    std::string axis;
    std::vector<int> ranks;
    int instance = 0;
    std::int64_t operations = 0;
  };
  struct Slot {
    Handle handle = -1;
    std::int64_t sequence = 0;
    int group = 0;
    std::array<char, kTextLimit> text{};
    std::size_t text_length = 0;
    Bytes bytes;
    Seconds posted;
    std::optional<Seconds> completed;
  };
  Slot& slot_of(Handle handle) { return slots_[static_cast<std::size_t>(handle) % slots_.size()]; }

  mutable std::mutex mutex_;  // guards everything below
  std::vector<Group> groups_;
  std::vector<Slot> slots_;  // a ring
  Handle next_ = 0;
};

// "#12 data [0, 1] all-reduce (sum) of 5 F32, 20 bytes: posted 3.000250 s, took 1.2 ms"
std::string to_text(const OperationRecord& record, Seconds now);
// Members are those of OperationRecord; times in seconds, "completed_s" null while absent.
Json to_json(const OperationRecord& record);
Json to_json(std::span<const OperationRecord> records);

}  // namespace trireme::telemetry
