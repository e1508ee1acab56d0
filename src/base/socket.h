#pragma once

// Stream sockets for the word between a supervisor and its workers: local ones (abstract names: nothing is left on
// disk) and TCP. Nothing blocks but connect and wait. Errors throw Error(kRankLost, "socket", ...) unless said
// otherwise.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"

namespace trireme {

// One end of a connection. Closed when destroyed.
class Connection {
 public:
  virtual ~Connection() = default;
  // Takes what the system takes now; the number of bytes, 0 where it takes none.
  virtual std::size_t send(std::string_view bytes) = 0;
  // What has arrived, at most 64 KiB; "" where nothing has. nullopt: the other end is gone.
  virtual std::optional<std::string> receive() = 0;
  // The other end receives what was sent, then the end. Closing alone may destroy what is under way.
  virtual void finish_sending() = 0;
  virtual int descriptor() const = 0;         // for wait_for_any
  virtual std::string other_end() const = 0;  // its host's address, without the port; "": this machine's
};

// What is still to be sent over a connection.
class SendQueue {
 public:
  void add(std::string_view bytes) { bytes_ += bytes; }
  // As far as the system takes it now. Throws as Connection::send does.
  void push(Connection& connection);
  void clear() { *this = SendQueue(); }
  bool empty() const { return size() == 0; }
  std::size_t size() const { return bytes_.size() - begin_; }

 private:
  std::string bytes_;
  std::size_t begin_ = 0;  // what is before it has been sent
};

class Listener {
 public:
  virtual ~Listener() = default;
  virtual std::unique_ptr<Connection> accept() = 0;  // null: nobody is there
  virtual std::string address() const = 0;           // what connect_to takes: "local:NAME", "tcp:HOST:PORT"
  virtual int descriptor() const = 0;
};

// A name that no other process has guessed; of this network namespace. Other users of this machine (but root) are
// closed before accept() hands them out: they find the name in /proc/net/unix.
std::unique_ptr<Listener> listen_locally();
// On a free port of all interfaces; host: what address() calls this machine. Where that is no name but an address of
// it, on that alone.
std::unique_ptr<Listener> listen_tcp(const std::string& host);
bool is_local(std::string_view address);
// Looking up the name of a host takes what it takes; the deadline is that of all after it.
std::unique_ptr<Connection> connect_to(const std::string& address, Seconds deadline);

// 32 bytes of the system's randomness, as 64 hex digits.
std::string random_secret();
// Of equal length: in a time that does not depend on where they differ.
bool same_secret(std::string_view a, std::string_view b);

struct Waited {
  int descriptor = -1;
  bool wants_to_send = false;  // also return when it can send
  bool ready = false;          // result: something to receive, to accept, to send, or an end
};
// Until one is ready or the time has passed. Returns early on a signal.
void wait_for_any(std::span<Waited> waited, Seconds timeout);

}  // namespace trireme
