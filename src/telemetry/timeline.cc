#include "telemetry/timeline.h"

#include <algorithm>

#include "base/check.h"

namespace trireme::telemetry {

std::string_view category_name(SpanCategory category) {
  constexpr std::string_view kNames[] = {"compute", "communication", "waiting"};
  return kNames[static_cast<std::size_t>(category)];
}

Timeline::Timeline(std::int64_t capacity) : words_{""} {
  TRIREME_CHECK(capacity > 0, "a timeline for {} spans", capacity);
  entries_.reserve(static_cast<std::size_t>(capacity));
}

Timeline::Word Timeline::word(std::string_view text) {
  const auto found = std::find(words_.begin(), words_.end(), text);
  const auto place = found - words_.begin();
  if (found == words_.end()) words_.emplace_back(text);
  return static_cast<Word>(place);
}

std::vector<Span> Timeline::spans() const {
  const auto text = [&](Word word) { return words_.at(static_cast<std::size_t>(word)); };
  std::vector<Span> spans;
  spans.reserve(entries_.size());
  for (const Entry& e : entries_) {
    spans.push_back({.name = text(e.name),
                     .category = e.category,
                     .begin = e.begin,
                     .end = e.end,
                     .track = text(e.track),
                     .place = e.place,
                     .bytes = e.bytes,
                     .detail = text(e.detail)});
  }
  return spans;
}

void Timeline::release() { std::vector<Entry>().swap(entries_); }

}  // namespace trireme::telemetry
