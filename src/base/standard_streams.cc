#include "base/standard_streams.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>

#include "base/check.h"

namespace trireme {

StandardStreams::StandardStreams()
    : output_{.descriptor = STDOUT_FILENO},
      error_{.descriptor = STDERR_FILENO},
      system_output_(stdout),
      system_error_(stderr) {
  std::fflush(stdout);
  stdout = open(output_);
  stderr = open(error_);
  if (::isatty(STDOUT_FILENO) == 1) std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  std::setvbuf(stderr, nullptr, _IONBF, 0);
}

StandardStreams::~StandardStreams() {
  std::fclose(stdout);
  std::fclose(stderr);
  stdout = system_output_;
  stderr = system_error_;
}

std::FILE* StandardStreams::open(Sink& sink) {
  std::FILE* file =
      ::fopencookie(&sink, "w", {.read = nullptr, .write = StandardStreams::write, .seek = nullptr, .close = nullptr});
  TRIREME_CHECK(file != nullptr, "no memory for a stream");
  return file;
}

// A descriptor that does not wait (its reader has made it so) is waited for.
ssize_t StandardStreams::write(void* place, const char* text, std::size_t size) {
  Sink& sink = *static_cast<Sink*>(place);
  std::size_t done = 0;
  while (done < size && sink.failure == 0) {
    const ssize_t put = ::write(sink.descriptor, text + done, size - done);
    if (put >= 0) {
      done += static_cast<std::size_t>(put);
    } else if (errno == EAGAIN) {
      pollfd entry{sink.descriptor, POLLOUT, 0};
      ::poll(&entry, 1, -1);
    } else if (errno != EINTR) {
      sink.failure = errno;
    }
  }
  if (sink.descriptor == STDERR_FILENO) sink.failure = 0;  // it may have room again
  return static_cast<ssize_t>(size);
}

int StandardStreams::flush_output() {
  std::fflush(stdout);
  return output_.failure;
}

bool output_has_no_reader() {
  pollfd entry{STDOUT_FILENO, 0, 0};
  return ::poll(&entry, 1, 0) == 1 && (entry.revents & POLLERR) != 0;
}

}  // namespace trireme
