#pragma once

// Standard output and error of a command, as streams on which no write fails: an output that is full, or whose reader
// is gone, must not end what a command is doing, or hide what it has found out.

#include <cstdio>

namespace trireme {

// stdout and stderr, as long as it lives. One at a time, made and destroyed by the main thread.
class StandardStreams {
 public:
  StandardStreams();
  ~StandardStreams();
  StandardStreams(const StandardStreams&) = delete;
  StandardStreams& operator=(const StandardStreams&) = delete;

  // Writes what waits on standard output. The system's reason (errno) for the first write on it that failed, since when
  // everything was lost; 0: none has.
  int flush_output();

 private:
  struct Sink {
    int descriptor = -1;
    int failure = 0;  // errno
  };
  static ssize_t write(void* sink, const char* text, std::size_t size);
  static std::FILE* open(Sink& sink);

  Sink output_, error_;
  std::FILE* system_output_;
  std::FILE* system_error_;
};

// Nobody reads standard output any more: what is still to come can be left out.
bool output_has_no_reader();

}  // namespace trireme
