#include "engine/comm/timing.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"
#include "engine/comm/decorator.h"

namespace trireme::comm {
namespace {

Seconds seconds_of(Clock::duration time) { return {std::chrono::duration<double>(time).count()}; }

// Adds the time of its own life, also where the call throws.
class Exposure {
 public:
  Exposure(CommunicationTimes& times, const std::string& axis) : times_(times), axis_(axis) {}
  ~Exposure() { times_.add_exposed(axis_, Clock::now() - begin_); }
  Exposure(const Exposure&) = delete;
  Exposure& operator=(const Exposure&) = delete;
  Clock::time_point begin() const { return begin_; }

 private:
  CommunicationTimes& times_;
  const std::string& axis_;
  const Clock::time_point begin_ = Clock::now();
};

class TimedRequest : public Request {
 public:
  // shared: the name of its group.
  TimedRequest(CommunicationTimes& times, std::shared_ptr<Communicator> shared, Clock::time_point posted,
               std::unique_ptr<Request> inner)
      : times_(times), shared_(std::move(shared)), posted_(posted), inner_(std::move(inner)) {}
  ~TimedRequest() override {
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
    const Exposure exposure(times_, axis());
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
    if (!std::exchange(ended_, true)) times_.end(axis(), posted_, inner_->completed_at());
  }

  CommunicationTimes& times_;
  std::shared_ptr<Communicator> shared_;
  const Clock::time_point posted_;
  bool ended_ = false;
  std::unique_ptr<Request> inner_;
};

class TimingCommunicator : public Decorator {
 public:
  TimingCommunicator(std::unique_ptr<Communicator> inner, CommunicationTimes& times)
      : Decorator(std::move(inner)), times_(times) {}

  void barrier() override {
    const Exposure exposure(times_, axis());
    measured(exposure.begin(), [&] { inner().barrier(); });
    times_.end(axis(), exposure.begin(), Clock::now());
  }

 protected:
  std::unique_ptr<Request> run(const Posting& posting) override {
    const Exposure exposure(times_, axis());
    std::unique_ptr<Request> request;
    measured(exposure.begin(), [&] { request = post(inner(), posting); });
    return std::make_unique<TimedRequest>(times_, shared_inner(), exposure.begin(), std::move(request));
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

std::unique_ptr<Communicator> make_timing_communicator(std::unique_ptr<Communicator> inner, CommunicationTimes& times) {
  return std::make_unique<TimingCommunicator>(std::move(inner), times);
}

}  // namespace trireme::comm
