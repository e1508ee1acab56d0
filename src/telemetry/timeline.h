#pragma once

// What a rank did, and when: spans of a training step, in memory that is taken once. Written as a trace (trace.h).

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"

namespace trireme::telemetry {

enum class SpanCategory : std::uint8_t { kCompute, kCommunication, kWaiting };
std::string_view category_name(SpanCategory category);  // "compute", "communication", "waiting"

// Which part of the run; -1: of none in particular.
struct SpanPlace {
  std::int32_t step = -1;
  std::int32_t unit = -1;
  std::int32_t micro_batch = -1;
  std::int32_t chunk = -1;
  friend bool operator==(const SpanPlace&, const SpanPlace&) = default;
};

struct Span {
  std::string name;
  SpanCategory category = SpanCategory::kCompute;
  Seconds begin = {};  // on the steady clock
  Seconds end = {};
  std::string track =
      {};  // "": what the rank's thread does, where spans nest; else an axis, whose operations may overlap
  SpanPlace place = {};
  std::int64_t bytes = -1;  // -1: moves none
  std::string detail = {};
  friend bool operator==(const Span&, const Span&) = default;
};

// Off until it is switched on. Adding a span copies one entry into memory that is there already. What comes once it is
// full is dropped and counted: the beginning of a trace is whole, and all later times are measured from it. The owner's
// thread only.
class Timeline {
 public:
  explicit Timeline(std::int64_t capacity);  // in spans, each of sizeof(Entry) bytes

  // A text that spans refer to. The same number for the same text; allocates.
  using Word = std::int32_t;
  Word word(std::string_view text);

  bool on() const { return on_; }
  void switch_to(bool on) { on_ = on; }

  // Where in the run the owner is now, for those who add spans without knowing it.
  const SpanPlace& place() const { return place_; }
  void set_place(const SpanPlace& place) { place_ = place; }

  struct Entry {
    Word name = 0;
    Word track = 0;  // 0 is the text ""
    Word detail = 0;
    SpanCategory category = SpanCategory::kCompute;
    SpanPlace place = {};
    std::int64_t bytes = -1;
    Seconds begin = {};
    Seconds end = {};
  };
  void add(const Entry& entry) {
    if (entries_.size() < entries_.capacity()) {
      entries_.push_back(entry);
    } else {
      ++dropped_;
    }
  }

  std::int64_t capacity() const { return static_cast<std::int64_t>(entries_.capacity()); }
  std::int64_t dropped() const { return dropped_; }
  std::vector<Span> spans() const;  // in the order in which they were added
  void release();                   // forgets all spans and gives their memory back: all that come later are dropped

 private:
  std::vector<std::string> words_;
  std::vector<Entry> entries_;  // never grows
  std::int64_t dropped_ = 0;
  SpanPlace place_;
  bool on_ = false;
};

}  // namespace trireme::telemetry
