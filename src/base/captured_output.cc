#include "base/captured_output.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <string_view>
#include <utility>

namespace trireme {
namespace {

constexpr std::size_t kReadBytes = std::size_t{64} << 10;
constexpr std::size_t kMostHeld = std::size_t{1} << 20;   // more than any launcher says before it starts anything
constexpr std::chrono::milliseconds kRestWithin{500};     // of what a child has written before its end
constexpr std::chrono::milliseconds kBetweenTries{1000};  // to write where nobody reads

// What cannot be written is passed over: a log ends no run.
void write_all(std::string_view text) {
  while (!text.empty()) {
    const ssize_t taken = ::write(STDERR_FILENO, text.data(), text.size());
    if (taken > 0) {
      text.remove_prefix(static_cast<std::size_t>(taken));
    } else if (taken < 0 && errno == EAGAIN) {
      pollfd entry{STDERR_FILENO, POLLOUT, 0};
      ::poll(&entry, 1, static_cast<int>(kBetweenTries.count()));
    } else if (taken == 0 || errno != EINTR) {
      return;
    }
  }
}

}  // namespace

CapturedOutput::CapturedOutput(int descriptor)
    : input_(descriptor), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), thread_([this] { run(); }) {}

CapturedOutput::~CapturedOutput() { stop(); }

void CapturedOutput::wake() {
  const std::uint64_t one = 1;
  if (::write(wake_.number(), &one, sizeof(one)) < 0) return;  // it is awake already
}

void CapturedOutput::stop() {
  {
    const std::scoped_lock lock(mutex_);
    stopped_ = true;
  }
  wake();
  if (thread_.joinable()) thread_.join();
}

void CapturedOutput::pass_on() {
  {
    const std::scoped_lock lock(mutex_);
    if (std::exchange(passes_, true)) return;
  }
  wake();
}

std::string CapturedOutput::end() {
  {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kRestWithin, [this] { return ended_; });
  }
  stop();
  return std::exchange(held_, "");
}

void CapturedOutput::run() {
  std::string bytes(kReadBytes, '\0');
  for (bool more = true; more;) {
    std::array<pollfd, 2> entries{pollfd{input_.number(), POLLIN, 0}, pollfd{wake_.number(), POLLIN, 0}};
    if (::poll(entries.data(), entries.size(), -1) < 0 && errno != EINTR) break;
    std::uint64_t count = 0;
    if (entries[1].revents != 0 && ::read(wake_.number(), &count, sizeof(count)) < 0) count = 0;
    ssize_t arrived = 0;
    if (entries[0].revents != 0) {
      arrived = ::read(input_.number(), bytes.data(), bytes.size());
      more = arrived > 0 || (arrived < 0 && errno == EINTR);
    }
    std::string text;
    {
      const std::scoped_lock lock(mutex_);
      if (arrived > 0) held_.append(bytes, 0, static_cast<std::size_t>(arrived));
      passes_ = passes_ || held_.size() > kMostHeld;
      if (passes_) text = std::exchange(held_, "");
      if (!more) ended_ = true;
      more = more && !stopped_;
    }
    write_all(text);
  }
  changed_.notify_all();
}

}  // namespace trireme
