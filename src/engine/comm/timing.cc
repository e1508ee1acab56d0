#include "engine/comm/timing.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "base/check.h"
#include "base/thread_clock.h"
#include "engine/comm/decorator.h"

namespace trireme::comm {
namespace {

Seconds seconds_of(Clock::duration time) { return {std::chrono::duration<double>(time).count()}; }

// The spans of one operation, but for their times.
struct Traced {
  telemetry::Timeline* timeline = nullptr;  // null: none are wanted
  telemetry::Timeline::Entry under_way = {};
  telemetry::Timeline::Entry blocked = {};

  void add(telemetry::Timeline::Entry entry, Clock::time_point begin, Clock::time_point end) const {
    entry.begin = on_the_clock(begin);
    entry.end = on_the_clock(std::max(begin, end));
    timeline->add(entry);
  }
  void add_under_way(Clock::time_point posted, Clock::time_point completed) const {
    if (timeline != nullptr) add(under_way, posted, completed);
  }
  void add_blocked(Clock::time_point begin, Clock::time_point end) const {
    if (timeline != nullptr) add(blocked, begin, end);
  }
};

// What a communicator writes into a timeline.
class Tracer {
 public:
  Tracer(telemetry::Timeline* timeline, const std::string& axis) : timeline_(timeline) {
    if (timeline_ == nullptr) return;
    axis_ = timeline_->word(axis);
    for (std::size_t i = 0; i < names_.size(); ++i) {
      const std::string name(operation_name(static_cast<Operation>(i)));
      names_[i] = {timeline_->word(name), timeline_->word("wait: " + name)};
    }
  }

  Traced operation(Operation operation, std::int64_t bytes) const {
    if (timeline_ == nullptr || !timeline_->on()) return {};
    const auto [name, wait] = names_[static_cast<std::size_t>(operation)];
    return {.timeline = timeline_,
            .under_way = {.name = name,
                          .track = axis_,
                          .category = telemetry::SpanCategory::kCommunication,
                          .place = timeline_->place(),
                          .bytes = bytes},
            .blocked = {.name = wait,
                        .detail = axis_,
                        .category = telemetry::SpanCategory::kWaiting,
                        .place = timeline_->place(),
                        .bytes = bytes}};
  }

 private:
  using Word = telemetry::Timeline::Word;
  telemetry::Timeline* timeline_;
  Word axis_ = 0;
  std::array<std::pair<Word, Word>, static_cast<std::size_t>(Operation::kReceive) + 1> names_{};
};

// Adds the time of its own life, also where the call throws.
class Exposure {
 public:
  Exposure(CommunicationTimes& times, const std::string& axis, const Traced& traced)
      : times_(times), axis_(axis), traced_(traced) {}
  ~Exposure() {
    const Clock::time_point end = Clock::now();
    times_.add_exposed(axis_, end - begin_);
    times_.add_busy_waiting({thread_cpu_time().count - begin_cpu_.count});
    traced_.add_blocked(begin_, end);
  }
  Exposure(const Exposure&) = delete;
  Exposure& operator=(const Exposure&) = delete;
  Clock::time_point begin() const { return begin_; }

 private:
  CommunicationTimes& times_;
  const std::string& axis_;
  const Traced& traced_;
  const Clock::time_point begin_ = Clock::now();
  const Seconds begin_cpu_ = thread_cpu_time();
};

class TimedRequest : public Request {
 public:
  // shared: the name of its group.
  TimedRequest(CommunicationTimes& times, std::shared_ptr<Communicator> shared, const Traced& traced,
               Clock::time_point posted, std::unique_ptr<Request> inner)
      : times_(times), shared_(std::move(shared)), traced_(traced), posted_(posted), inner_(std::move(inner)) {}
  ~TimedRequest() override {
    if (ended_) traced_ = {};
    try {
      wait();
    } catch (const std::exception&) {
      // The communicator is dead: the next call says so.
    }
  }
  bool done() override {
    if (!inner_->done()) return false;
    end();
    return true;
  }
  void wait() override {
    const Exposure exposure(times_, axis(), traced_);
    try {
      inner_->wait();
    } catch (...) {
      if (!std::exchange(ended_, true)) times_.forget(axis(), posted_);
      throw;
    }
    end();
  }
  Clock::time_point completed_at() const override { return inner_->completed_at(); }

 private:
  const std::string& axis() const { return shared_->name().axis; }
  void end() {
    if (std::exchange(ended_, true)) return;
    const Clock::time_point completed = inner_->completed_at();
    times_.end(axis(), posted_, completed);
    traced_.add_under_way(posted_, completed);
  }

  CommunicationTimes& times_;
  std::shared_ptr<Communicator> shared_;
  Traced traced_;
  const Clock::time_point posted_;
  bool ended_ = false;
  std::unique_ptr<Request> inner_;
};

class TimingCommunicator : public Decorator {
 public:
  TimingCommunicator(std::unique_ptr<Communicator> inner, CommunicationTimes& times, telemetry::Timeline* timeline)
      : Decorator(std::move(inner)), times_(times), tracer_(timeline, axis()) {}

  void barrier() override {
    const Traced traced = tracer_.operation(Operation::kBarrier, -1);
    const Exposure exposure(times_, axis(), traced);
    measured(exposure.begin(), [&] { inner().barrier(); });
    const Clock::time_point end = Clock::now();
    times_.end(axis(), exposure.begin(), end);
    traced.add_under_way(exposure.begin(), end);
  }

 protected:
  std::unique_ptr<Request> run(const Posting& posting) override {
    const Traced traced = tracer_.operation(posting.call.operation, posting.bytes().count);
    const Exposure exposure(times_, axis(), traced);
    std::unique_ptr<Request> request;
    measured(exposure.begin(), [&] { request = post(inner(), posting); });
    return std::make_unique<TimedRequest>(times_, shared_inner(), traced, exposure.begin(), std::move(request));
  }

 private:
  const std::string& axis() const { return name().axis; }

  template <class Body>
  void measured(Clock::time_point posted, Body&& body) {
    times_.begin(axis(), posted);
    try {
      body();
    } catch (...) {
      times_.forget(axis(), posted);
      throw;
    }
  }

  CommunicationTimes& times_;
  const Tracer tracer_;
};

}  // namespace

void CommunicationTimes::begin(const std::string& axis, Clock::time_point posted) {
  axes_[axis].running.insert(posted);
}

void CommunicationTimes::end(const std::string& axis, Clock::time_point posted, Clock::time_point completed) {
  forget(axis, posted);
  Axis& own = axes_[axis];
  ++own.operations;
  own.add({posted, std::max(posted, completed)});
  own.settle(own.running.empty() ? Clock::time_point::max() : *own.running.begin());
}

void CommunicationTimes::forget(const std::string& axis, Clock::time_point posted) {
  auto& running = axes_[axis].running;
  const auto place = running.find(posted);
  TRIREME_CHECK(place != running.end(), "an operation over {} ends that never began", axis);
  running.erase(place);
}

void CommunicationTimes::add_exposed(const std::string& axis, Clock::duration time) { axes_[axis].exposed += time; }

void CommunicationTimes::add_busy_waiting(Seconds time) { busy_waiting_.count += time.count; }

Seconds CommunicationTimes::take_busy_waiting() { return std::exchange(busy_waiting_, {}); }

Seconds CommunicationTimes::exposed() const {
  Clock::duration sum{};
  for (const auto& [name, axis] : axes_) sum += axis.exposed;
  return seconds_of(sum);
}

std::map<std::string, AxisTimes> CommunicationTimes::take() {
  std::map<std::string, AxisTimes> result;
  for (auto& [name, axis] : axes_) {
    axis.settle(Clock::time_point::max());
    result[name] = {seconds_of(std::exchange(axis.under_way, {})), seconds_of(std::exchange(axis.exposed, {})),
                    std::exchange(axis.operations, 0)};
  }
  return result;
}

void CommunicationTimes::Axis::add(Interval interval) {
  const auto first = std::lower_bound(intervals.begin(), intervals.end(), interval.begin,
                                      [](const Interval& i, Clock::time_point begin) { return i.end < begin; });
  auto last = first;
  for (; last != intervals.end() && last->begin <= interval.end; ++last) {
    interval.begin = std::min(interval.begin, last->begin);
    interval.end = std::max(interval.end, last->end);
  }
  const auto place = intervals.erase(first, last);
  intervals.insert(place, interval);
  if (intervals.size() <= kMaxIntervals) return;
  intervals[1].begin = intervals[0].begin;
  intervals.erase(intervals.begin());
}

// Running and later operations begin at `before` or after it: what ends by then can only be added up.
void CommunicationTimes::Axis::settle(Clock::time_point before) {
  auto open = intervals.begin();
  for (; open != intervals.end() && open->end <= before; ++open) under_way += open->end - open->begin;
  intervals.erase(intervals.begin(), open);
}

std::unique_ptr<Communicator> make_timing_communicator(std::unique_ptr<Communicator> inner, CommunicationTimes& times,
                                                       telemetry::Timeline* timeline) {
  return std::make_unique<TimingCommunicator>(std::move(inner), times, timeline);
}

}  // namespace trireme::comm
