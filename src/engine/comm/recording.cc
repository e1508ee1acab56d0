#include "engine/comm/recording.h"

#include <chrono>
#include <utility>

#include "engine/comm/decorator.h"

namespace trireme::comm {
namespace {

using telemetry::FlightRecorder;

class RecordedRequest : public Request {
 public:
  RecordedRequest(FlightRecorder& recorder, FlightRecorder::Handle handle, std::unique_ptr<Request> inner)
      : recorder_(recorder), handle_(handle), inner_(std::move(inner)) {}
  ~RecordedRequest() override {
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
    try {
      inner_->wait();
    } catch (...) {
      ended_ = true;  // with no time
      throw;
    }
    end();
  }
  Clock::time_point completed_at() const override { return inner_->completed_at(); }

 private:
  void end() {
    if (!std::exchange(ended_, true)) recorder_.end(handle_, on_the_clock(inner_->completed_at()));
  }

  FlightRecorder& recorder_;
  const FlightRecorder::Handle handle_;
  bool ended_ = false;
  std::unique_ptr<Request> inner_;
};

class RecordingCommunicator : public Decorator {
 public:
  RecordingCommunicator(std::unique_ptr<Communicator> inner, FlightRecorder& recorder)
      : Decorator(std::move(inner)), recorder_(recorder), group_(recorder.add_group(name().axis, name().ranks)) {}

  void barrier() override {
    const FlightRecorder::Handle handle = begin({});
    inner().barrier();
    recorder_.end(handle, on_the_clock(Clock::now()));
  }

 protected:
  std::unique_ptr<Request> run(const Posting& posting) override {
    const FlightRecorder::Handle handle = begin(posting);
    return std::make_unique<RecordedRequest>(recorder_, handle, post(inner(), posting));
  }

 private:
  FlightRecorder::Handle begin(const Posting& posting) {
    return recorder_.begin(group_, posting.call.text(), posting.bytes(), on_the_clock(Clock::now()));
  }

  FlightRecorder& recorder_;
  const int group_;
};

}  // namespace

std::unique_ptr<Communicator> make_recording_communicator(std::unique_ptr<Communicator> inner,
                                                          FlightRecorder& recorder) {
  return std::make_unique<RecordingCommunicator>(std::move(inner), recorder);
}

}  // namespace trireme::comm
