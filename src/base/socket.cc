#include "base/socket.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/descriptor.h"
#include "base/env.h"
#include "base/error.h"

namespace trireme {
namespace {

constexpr int kBacklog = 4096;  // the system cuts it to its own bound
constexpr std::size_t kReceiveBytes = std::size_t{64} << 10;
constexpr int kStrangersAtOnce = 4096;
constexpr std::string_view kLocal = "local:";
constexpr std::string_view kTcp = "tcp:";

[[noreturn]] void fail(const std::string& what, const std::string& why) {
  throw Error(ExitCode::kRankLost, "socket", what, why);
}
[[noreturn]] void fail(const std::string& what, int reason) { fail(what, std::generic_category().message(reason)); }

// Without a delay that waits for more to send. Of local sockets there is none: the call fails, as it may.
void send_at_once(int socket) {
  const int on = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

class SocketConnection : public Connection {
 public:
  explicit SocketConnection(Descriptor socket) : socket_(std::move(socket)) { send_at_once(socket_.number()); }

  std::size_t send(std::string_view bytes) override {
    while (!bytes.empty()) {
      const ssize_t taken = ::send(socket_.number(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (taken >= 0) return static_cast<std::size_t>(taken);
      if (errno == EAGAIN || errno == EWOULDBLOCK) return 0;
      if (errno != EINTR) fail("send", errno);
    }
    return 0;
  }

  std::optional<std::string> receive() override {
    std::array<char, kReceiveBytes> buffer;
    while (true) {
      const ssize_t arrived = ::recv(socket_.number(), buffer.data(), buffer.size(), MSG_DONTWAIT);
      if (arrived > 0) return std::string(buffer.data(), static_cast<std::size_t>(arrived));
      if (arrived == 0) return std::nullopt;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return "";
      if (errno != EINTR) return std::nullopt;  // reset, timed out, unreachable: nothing more comes
    }
  }

  void finish_sending() override { ::shutdown(socket_.number(), SHUT_WR); }
  std::string other_end() const override {
    sockaddr_storage storage = {};
    socklen_t size = sizeof(storage);
    if (::getpeername(socket_.number(), reinterpret_cast<sockaddr*>(&storage), &size) != 0) return "";
    if (storage.ss_family != AF_INET && storage.ss_family != AF_INET6) return "";
    std::array<char, NI_MAXHOST> text{};
    const int failed = ::getnameinfo(reinterpret_cast<const sockaddr*>(&storage), size, text.data(), text.size(),
                                     nullptr, 0, NI_NUMERICHOST);
    return failed == 0 ? text.data() : "";
  }
  int descriptor() const override { return socket_.number(); }

 private:
  Descriptor socket_;
};

// Another user of this machine, at a local socket. Of others it is not known.
bool is_stranger(int socket) {
  ucred user = {};
  socklen_t size = sizeof(user);
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &user, &size) != 0 || user.pid == 0) return false;
  return user.uid != 0 && user.uid != ::geteuid();
}

class SocketListener : public Listener {
 public:
  SocketListener(Descriptor socket, std::string address) : socket_(std::move(socket)), address_(std::move(address)) {}

  // What is wrong with one that came (it has gone again) or with the system (no descriptors are left) is no reason to
  // end: it comes again or it does not.
  std::unique_ptr<Connection> accept() override {
    for (int i = 0; i < kStrangersAtOnce; ++i) {
      Descriptor accepted(::accept4(socket_.number(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (accepted.number() < 0) return nullptr;
      if (!is_stranger(accepted.number())) return std::make_unique<SocketConnection>(std::move(accepted));
    }
    return nullptr;
  }
  std::string address() const override { return address_; }
  int descriptor() const override { return socket_.number(); }

 private:
  Descriptor socket_;
  std::string address_;
};

Descriptor open_socket(int family) {
  return Descriptor(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

// An address of the system, of any family.
struct SystemAddress {
  sockaddr_storage storage = {};
  socklen_t length = 0;
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

SystemAddress local_address(std::string_view name) {
  sockaddr_un local = {};
  local.sun_family = AF_UNIX;
  // The zero byte before the name makes it an abstract one.
  if (name.empty() || name.size() + 1 > sizeof(local.sun_path)) fail(fmt::format("address local:{}", name), "no name");
  std::memcpy(local.sun_path + 1, name.data(), name.size());
  SystemAddress address;
  std::memcpy(&address.storage, &local, sizeof(local));
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

std::vector<SystemAddress> tcp_addresses(const std::string& text) {
  const std::string what = "address " + text;
  const std::string_view rest = std::string_view(text).substr(kTcp.size());
  const std::size_t colon = rest.rfind(':');
  if (colon == std::string_view::npos || colon == 0) fail(what, "it is none of tcp:HOST:PORT");
  const std::string host(rest.substr(0, colon));
  const std::string port(rest.substr(colon + 1));
  int number = 0;
  const auto parsed = std::from_chars(port.data(), port.data() + port.size(), number);
  if (parsed.ec != std::errc{} || parsed.ptr != port.data() + port.size() || number < 1 || number > 65535) {
    fail(what, "the port is no number of 1 to 65535");
  }
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int reason = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &found);
  if (reason != 0) fail(what, ::gai_strerror(reason));
  std::vector<SystemAddress> addresses;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    SystemAddress& address = addresses.emplace_back();
    std::memcpy(&address.storage, one->ai_addr, one->ai_addrlen);
    address.length = one->ai_addrlen;
  }
  ::freeaddrinfo(found);
  return addresses;
}

// 0: connected. Else why not.
int finish_connecting(const Descriptor& socket, Seconds until) {
  while (true) {
    const Seconds left{until.count - posix_env().now().count};
    if (left.count <= 0) return ETIMEDOUT;
    std::array<Waited, 1> waited{Waited{socket.number(), true}};
    wait_for_any(waited, left);
    if (!waited[0].ready) continue;
    int reason = 0;
    socklen_t size = sizeof(reason);
    if (::getsockopt(socket.number(), SOL_SOCKET, SO_ERROR, &reason, &size) != 0) return errno;
    return reason;
  }
}

// Nobody takes connections fast enough, or is there yet: worth another try.
bool may_yet_answer(int reason) { return reason == EAGAIN || reason == EINTR; }

int connect_once(const Descriptor& socket, SystemAddress address, Seconds until) {
  if (::connect(socket.number(), address.get(), address.length) == 0) return 0;
  return errno == EINPROGRESS ? finish_connecting(socket, until) : errno;
}

// Of a host that is given as an address, with any port; length 0: as a name.
SystemAddress own_address(const std::string& host) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_PASSIVE;
  addrinfo* found = nullptr;
  SystemAddress address;
  if (::getaddrinfo(host.c_str(), "0", &hints, &found) != 0) return address;
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  address.length = found->ai_addrlen;
  ::freeaddrinfo(found);
  return address;
}

std::unique_ptr<Listener> listen_at(Descriptor socket, const std::string& host) {
  SystemAddress bound;
  bound.length = sizeof(bound.storage);
  if (::listen(socket.number(), kBacklog) != 0 || ::getsockname(socket.number(), bound.get(), &bound.length) != 0) {
    fail("listen", errno);
  }
  // The port lies at the same place in both versions' addresses.
  static_assert(offsetof(sockaddr_in, sin_port) == offsetof(sockaddr_in6, sin6_port));
  sockaddr_in port_holder = {};
  std::memcpy(&port_holder, &bound.storage, sizeof(port_holder));
  return std::make_unique<SocketListener>(std::move(socket),
                                          fmt::format("{}{}:{}", kTcp, host, ntohs(port_holder.sin_port)));
}

}  // namespace

void SendQueue::push(Connection& connection) {
  while (!empty()) {
    const std::size_t taken = connection.send(std::string_view(bytes_).substr(begin_));
    if (taken == 0) break;
    begin_ += taken;
  }
  // What is left moves only when it is the lesser part: all moves together cost no more than the bytes.
  if (begin_ <= bytes_.size() / 2) return;
  bytes_.erase(0, begin_);
  begin_ = 0;
}

std::unique_ptr<Listener> listen_locally() {
  const std::string name = "trireme-" + random_secret().substr(0, 32);
  Descriptor socket = open_socket(AF_UNIX);
  SystemAddress address = local_address(name);
  if (socket.number() < 0 || ::bind(socket.number(), address.get(), address.length) != 0 ||
      ::listen(socket.number(), kBacklog) != 0) {
    fail("listen", errno);
  }
  return std::make_unique<SocketListener>(std::move(socket), std::string(kLocal) + name);
}

std::unique_ptr<Listener> listen_tcp(const std::string& host) {
  SystemAddress address = own_address(host);
  Descriptor socket;
  if (address.length > 0) {
    socket = open_socket(address.storage.ss_family);
    if (socket.number() >= 0 && ::bind(socket.number(), address.get(), address.length) == 0) {
      return listen_at(std::move(socket), host);
    }
  }
  socket = open_socket(AF_INET6);
  address = {};
  if (socket.number() >= 0) {  // takes both versions
    const int off = 0;
    ::setsockopt(socket.number(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    sockaddr_in6 any = {};
    any.sin6_family = AF_INET6;
    any.sin6_addr = IN6ADDR_ANY_INIT;
    std::memcpy(&address.storage, &any, sizeof(any));
    address.length = sizeof(any);
  }
  if (socket.number() < 0 || ::bind(socket.number(), address.get(), address.length) != 0) {
    socket = open_socket(AF_INET);
    sockaddr_in any = {};
    any.sin_family = AF_INET;
    any.sin_addr.s_addr = htonl(INADDR_ANY);
    std::memcpy(&address.storage, &any, sizeof(any));
    address.length = sizeof(any);
    if (socket.number() < 0 || ::bind(socket.number(), address.get(), address.length) != 0) fail("listen", errno);
  }
  return listen_at(std::move(socket), host);
}

bool is_local(std::string_view address) { return address.starts_with(kLocal); }

std::unique_ptr<Connection> connect_to(const std::string& address, Seconds deadline) {
  const Seconds until{posix_env().now().count + deadline.count};
  std::vector<SystemAddress> candidates;
  if (is_local(address)) {
    candidates.push_back(local_address(std::string_view(address).substr(kLocal.size())));
  } else if (address.starts_with(kTcp)) {
    candidates = tcp_addresses(address);
  } else {
    fail("address " + address, "it begins with neither local: nor tcp:");
  }
  int reason = ETIMEDOUT;
  for (std::size_t tried = 0; tried < candidates.size();) {
    const SystemAddress& candidate = candidates[tried];
    Descriptor socket = open_socket(candidate.storage.ss_family);
    reason = socket.number() < 0 ? errno : connect_once(socket, candidate, until);
    if (reason == 0) return std::make_unique<SocketConnection>(std::move(socket));
    if (posix_env().now() >= until) break;
    if (may_yet_answer(reason)) {
      posix_env().sleep(Seconds{0.01});
    } else {
      ++tried;
    }
  }
  fail("connect to " + address, reason);
}

std::string random_secret() {
  std::array<unsigned char, 32> bytes{};
  for (std::size_t have = 0; have < bytes.size();) {
    const ssize_t more = ::getrandom(bytes.data() + have, bytes.size() - have, 0);
    if (more < 0 && errno != EINTR) fail("random bytes", errno);
    if (more > 0) have += static_cast<std::size_t>(more);
  }
  std::string text;
  for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

bool same_secret(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  volatile unsigned char difference = 0;  // read and written each time: the loop has no way out
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference =
        static_cast<unsigned char>(difference | (static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i])));
  }
  return difference == 0;
}

void wait_for_any(std::span<Waited> waited, Seconds timeout) {
  std::vector<pollfd> entries;
  entries.reserve(waited.size());
  for (const Waited& one : waited) {
    entries.push_back({one.descriptor, static_cast<short>(POLLIN | (one.wants_to_send ? POLLOUT : 0)), 0});
  }
  constexpr double kMost_ms = 1e6;
  const double wanted_ms = std::ceil(std::clamp(timeout.count * 1e3, 0.0, kMost_ms));
  const int count = ::poll(entries.data(), entries.size(), static_cast<int>(wanted_ms));
  if (count < 0 && errno != EINTR) fail("wait", errno);
  for (std::size_t i = 0; i < waited.size(); ++i) waited[i].ready = count > 0 && entries[i].revents != 0;
}

}  // namespace trireme
