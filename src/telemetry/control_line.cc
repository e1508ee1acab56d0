#include "telemetry/control_line.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/env.h"
#include "base/error.h"
#include "base/socket.h"
#include "base/wait_clock.h"

namespace trireme::telemetry {
namespace {

constexpr Seconds kConnectWithin{10};
constexpr Seconds kPoll{0.05};
constexpr Seconds kEndWithin{1};
constexpr double kMostPause_s = 0.2;  // between two tries to be let in
constexpr int kReceivesAtOnce = 64;

class SocketLine : public ControlLine {
 public:
  explicit SocketLine(LineOptions options)
      : options_(std::move(options)), connection_(connect_to(options_.address, kConnectWithin)) {
    send(options_.hello);
    regular_at_ = now();
    thread_ = std::thread([this] { run(); });
  }

  ~SocketLine() override {
    {
      const std::scoped_lock lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void send(const Message& message) override { send_frame(to_frame(message)); }

  bool flush(double seconds) override {
    std::unique_lock lock(mutex_);
    const bool empty =
        changed_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return unsent_.empty() || broken_; });
    return empty && !broken_;
  }

 private:
  static double now() { return posix_env().now().count; }

  void send_frame(const std::string& frame) {
    const std::scoped_lock lock(mutex_);
    if (!known_) early_ += frame;
    unsent_.add(frame);
    push();
  }

  // mutex_ is held. What is queued goes as far as the system takes it. An end is the line's thread's to find.
  void push() {
    if (broken_) return;
    try {
      unsent_.push(*connection_);
    } catch (const Error&) {
      broken_ = true;
    }
    if (unsent_.empty() || broken_) changed_.notify_all();
  }

  void run() {
    while (!ending()) {
      wait();
      std::optional<std::string> end = receive();
      if (ending()) break;
      if (end && enters_again()) continue;
      if (!end) end = silence();
      if (end) {
        close();
        options_.gone(*end);
        return;
      }
      say_regular();
      const std::scoped_lock lock(mutex_);
      push();
    }
    finish();
  }

  // A connection that ended before the supervisor has said a word may have had to make place in a crowd of strangers:
  // all that was said over it is said over another one.
  bool enters_again() {
    if (known_ || now() >= enters_until_) return false;
    posix_env().sleep(Seconds{std::exchange(pause_s_, std::min(2 * pause_s_, kMostPause_s))});
    if (ending()) return false;
    try {
      std::unique_ptr<Connection> connection =
          connect_to(options_.address, Seconds{std::max(enters_until_ - now(), kMostPause_s)});
      const std::scoped_lock lock(mutex_);
      connection_ = std::move(connection);
      unsent_.clear();
      unsent_.add(early_);
      broken_ = false;
      push();
    } catch (const Error&) {
      return false;
    }
    silence_.restart(posix_env().now());
    return true;
  }

  // Why the supervisor's silence is the end, if it is.
  std::optional<std::string> silence() {
    const Seconds at = posix_env().now();
    double silent = silence_.look(at).count;
    if (silence_.missed().count > 0) {  // this process was stopped: what was said meanwhile is still to come
      silence_.restart(at);
      silent = 0;
    }
    const bool stops = local_ && options_.silent != nullptr;
    if (stops && silent > kFence_s) return set_silent(true);
    if (is_silent_ || silent <= kFence_s + (local_ && options_.is_stopped ? kStopMargin_s : 0)) return std::nullopt;
    return fmt::format("the supervisor has said nothing for {} s", kFence_s);
  }

  std::optional<std::string> set_silent(bool silent) {
    if (is_silent_ != silent && options_.silent) options_.silent(silent);
    is_silent_ = silent;
    return std::nullopt;
  }

  // After it nothing is sent; whoever waits for that is told.
  void close() {
    const std::scoped_lock lock(mutex_);
    broken_ = true;
    changed_.notify_all();
  }

  bool ending() {
    const std::scoped_lock lock(mutex_);
    return ending_;
  }

  void wait() {
    std::array<Waited, 1> waited{Waited{connection_->descriptor()}};
    {
      const std::scoped_lock lock(mutex_);
      waited[0].wants_to_send = !unsent_.empty() && !broken_;
    }
    wait_for_any(waited, kPoll);
  }

  // Hands over what has arrived. Why the line is at its end, if it is.
  std::optional<std::string> receive() {
    for (int i = 0; i < kReceivesAtOnce; ++i) {
      const std::optional<std::string> bytes = connection_->receive();
      if (!bytes) return "the supervisor is gone";
      if (bytes->empty()) break;
      silence_.restart(posix_env().now());
      set_silent(false);
      if (!known_) {
        const std::scoped_lock lock(mutex_);
        known_ = true;
        early_.clear();
      }
      reader_.add(*bytes);
      if (auto end = hand_over()) return end;
    }
    return std::nullopt;
  }

  std::optional<std::string> hand_over() {
    while (true) {
      const Result<std::optional<Message>> message = reader_.next();
      if (!message) return "the supervisor is not understood: " + message.failure().sentence();
      if (!*message) return std::nullopt;
      if (!is_for_workers(**message)) return "the supervisor is not understood: a message that is not for workers";
      if (std::holds_alternative<Suspend>(**message)) {
        set_silent(true);
      } else {
        options_.take(**message);
      }
    }
  }

  void say_regular() {
    const std::optional<Message> message = options_.regular ? options_.regular() : std::nullopt;
    const std::string frame = to_frame(message.value_or(Message(Alive{})));
    const bool due = now() - regular_at_ >= kAliveEvery_s;
    if (!due && (!message || frame == last_regular_)) return;
    regular_at_ = now();
    last_regular_ = frame;
    send_frame(frame);
  }

  // The other end has everything once it has closed, too.
  void finish() {
    const double until = now() + kEndWithin.count;
    bool said_end = false;
    while (now() < until) {
      {
        const std::scoped_lock lock(mutex_);
        push();
        if (broken_) return;
        if (unsent_.empty() && !std::exchange(said_end, true)) connection_->finish_sending();
      }
      if (!connection_->receive()) return;
      std::array<Waited, 1> waited{Waited{connection_->descriptor(), !said_end}};
      wait_for_any(waited, Seconds{std::min(kPoll.count, std::max(until - now(), 0.0))});
    }
  }

  LineOptions options_;
  std::unique_ptr<Connection> connection_;
  const bool local_ = is_local(options_.address);
  // Of the line's thread.
  FrameReader reader_{kMostMessageBytes};
  std::string last_regular_;
  const double enters_until_ = posix_env().now().count + kConnectWithin.count;
  double pause_s_ = 0.01;
  WaitClock silence_{posix_env().now()};
  bool is_silent_ = false;  // and whoever runs here stands still until it speaks again
  double regular_at_ = 0;

  std::mutex mutex_;  // guards what follows, and sending
  std::condition_variable changed_;
  SendQueue unsent_;
  std::atomic<bool> known_ = false;  // the supervisor has said something
  std::string early_;                // what was sent before that
  bool broken_ = false;              // nothing can be sent any more
  bool ending_ = false;

  std::thread thread_;
};

}  // namespace

std::unique_ptr<ControlLine> open_control_line(LineOptions options) {
  return std::make_unique<SocketLine>(std::move(options));
}

}  // namespace trireme::telemetry
