#include "telemetry/flight_recorder.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/check.h"

namespace trireme::telemetry {

FlightRecorder::FlightRecorder(int capacity) {
  TRIREME_CHECK_GT(capacity, 0);
  slots_.resize(static_cast<std::size_t>(capacity));
}

int FlightRecorder::add_group(std::string axis, std::vector<int> ranks) {
  const std::lock_guard lock(mutex_);
  const auto instance = std::count_if(groups_.begin(), groups_.end(),
                                      [&](const Group& group) { return group.axis == axis && group.ranks == ranks; });
  groups_.push_back({std::move(axis), std::move(ranks), static_cast<int>(instance), 0});
  return static_cast<int>(groups_.size()) - 1;
}

FlightRecorder::Handle FlightRecorder::begin(int group, std::string_view operation, Bytes bytes, Seconds posted) {
  const std::lock_guard lock(mutex_);
  TRIREME_CHECK(group >= 0 && group < std::ssize(groups_), "group {} of {}", group, groups_.size());
  Slot& slot = slot_of(next_);
  slot.handle = next_;
  slot.sequence = ++groups_[static_cast<std::size_t>(group)].operations;
  slot.group = group;
  slot.text_length = operation.copy(slot.text.data(), slot.text.size());
  slot.bytes = bytes;
  slot.posted = posted;
  slot.completed.reset();
  return next_++;
}

void FlightRecorder::end(Handle handle, Seconds when) {
  const std::lock_guard lock(mutex_);
  TRIREME_CHECK(handle >= 0 && handle < next_, "operation {} of {}", handle, next_);
  Slot& slot = slot_of(handle);
  if (slot.handle == handle) slot.completed = when;
}

std::vector<OperationRecord> FlightRecorder::records() const {
  const std::lock_guard lock(mutex_);
  std::vector<OperationRecord> records;
  const auto capacity = static_cast<Handle>(slots_.size());
  for (Handle handle = std::max<Handle>(0, next_ - capacity); handle < next_; ++handle) {
    const Slot& slot = slots_[static_cast<std::size_t>(handle) % slots_.size()];
    const Group& group = groups_[static_cast<std::size_t>(slot.group)];
    records.push_back({.sequence = slot.sequence,
                       .axis = group.axis,
                       .ranks = group.ranks,
                       .instance = group.instance,
                       .operation = std::string(slot.text.data(), slot.text_length),
                       .bytes = slot.bytes,
                       .posted = slot.posted,
                       .completed = slot.completed});
  }
  return records;
}

std::string FlightRecorder::text(Seconds now) const {
  std::string text;
  for (const OperationRecord& record : records()) text += to_text(record, now) + "\n";
  return text;
}

std::string to_text(const OperationRecord& record, Seconds now) {
  const Seconds taken{record.completed.value_or(now).count - record.posted.count};
  return fmt::format("#{} {}{} [{}] {}, {} bytes: posted {:.6f} s, {} {}", record.sequence, record.axis,
                     record.instance == 0 ? "" : fmt::format(" ({})", record.instance), fmt::join(record.ranks, ", "),
                     record.operation, format_exact(record.bytes.count), record.posted.count,
                     record.completed ? "took" : "not complete after", format_seconds(taken));
}

Json to_json(const OperationRecord& record) {
  Json::Array ranks(record.ranks.begin(), record.ranks.end());
  return Json::object({{"sequence", record.sequence},
                       {"axis", record.axis},
                       {"ranks", std::move(ranks)},
                       {"instance", record.instance},
                       {"operation", record.operation},
                       {"bytes", record.bytes.count},
                       {"posted_s", record.posted.count},
                       {"completed_s", record.completed ? Json(record.completed->count) : Json(nullptr)}});
}

Json to_json(std::span<const OperationRecord> records) {
  Json list = Json::array();
  for (const OperationRecord& record : records) list.push_back(to_json(record));
  return list;
}

}  // namespace trireme::telemetry
