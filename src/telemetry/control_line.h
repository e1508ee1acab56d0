#pragma once

// A worker's connection to its supervisor, on a thread of its own: sends what is queued, hands over what arrives, says
// each half second that it lives, and ends the process at once when the supervisor is gone or has been silent for
// kFence_s (what it would do then might be done twice). Time in which this process itself was stopped does not count.

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "telemetry/control_message.h"

namespace trireme::telemetry {

class ControlLine {
 public:
  // Sends what is queued and waits until the supervisor has taken it and closed, at most a second in all. `gone` is not
  // called any more. Not from the line's own thread.
  virtual ~ControlLine() = default;
  // Any thread; never blocks on the network.
  virtual void send(const Message& message) = 0;
  // False once what is queued did not leave within the time.
  virtual bool flush(double seconds) = 0;
};

struct LineOptions {
  std::string address;
  Hello hello;
  std::function<void(const Message&)> take;  // on the line's thread
  // Asked each 50 ms, on the line's thread, for what is to be said: it is sent where it differs from what it was, and
  // each kAliveEvery_s. Null, or with nothing to say: an Alive of no rank each kAliveEvery_s.
  std::function<std::optional<Message>()> regular;
  // The supervisor is gone, silent, or not understood: why. On the line's thread, once; should end the process.
  std::function<void(const std::string&)> gone;
  // Where this process can stand still instead: true when the supervisor has said nothing for kFence_s, or Suspend;
  // false when it speaks again. Its silence is no end then: the end of one on this machine is always told. May be
  // null. On the line's thread.
  std::function<void(bool)> silent = nullptr;
  // Another process stops this one when the supervisor on this machine is silent: this one ends itself if that has not
  // come about kStopMargin_s after.
  bool is_stopped = false;
};
// Connects and says hello, again where it is closed before a word has come (a crowd of strangers may be there);
// Error(kRankLost) where nobody answers within 10 s.
std::unique_ptr<ControlLine> open_control_line(LineOptions options);

}  // namespace trireme::telemetry
