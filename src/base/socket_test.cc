#include "base/socket.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <csignal>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "base/env.h"
#include "base/error.h"

namespace trireme {
namespace {

double now() { return posix_env().now().count; }

void wait_for(int descriptor, bool wants_to_send = false) {
  std::vector<Waited> waited{{descriptor, wants_to_send}};
  wait_for_any(waited, Seconds{1});
}

std::unique_ptr<Connection> accept_within(Listener& listener, double seconds = 5) {
  const double until = now() + seconds;
  while (now() < until) {
    if (auto connection = listener.accept()) return connection;
    wait_for(listener.descriptor());
  }
  return nullptr;
}

// All that arrives until `bytes` are there or the other end is gone.
std::string receive_all(Connection& connection, std::size_t bytes) {
  std::string all;
  const double until = now() + 10;
  while (all.size() < bytes && now() < until) {
    const auto more = connection.receive();
    if (!more) break;
    all += *more;
    if (more->empty()) wait_for(connection.descriptor());
  }
  return all;
}

struct Pair {
  std::unique_ptr<Listener> listener;
  std::unique_ptr<Connection> here;
  std::unique_ptr<Connection> there;
};

Pair connected(bool tcp) {
  Pair pair;
  pair.listener = tcp ? listen_tcp("127.0.0.1") : listen_locally();
  pair.here = connect_to(pair.listener->address(), Seconds{5});
  pair.there = accept_within(*pair.listener);
  EXPECT_NE(pair.there, nullptr);
  return pair;
}

class SocketTest : public testing::TestWithParam<bool> {};

TEST_P(SocketTest, CarriesBytesBothWays) {
  const Pair pair = connected(GetParam());
  EXPECT_EQ(pair.here->receive(), "");
  EXPECT_EQ(pair.here->send("hello"), 5u);
  EXPECT_EQ(pair.there->send("there"), 5u);
  EXPECT_EQ(receive_all(*pair.there, 5), "hello");
  EXPECT_EQ(receive_all(*pair.here, 5), "there");
  EXPECT_EQ(pair.here->send(""), 0u);
}

TEST_P(SocketTest, TakesWhatThereIsRoomForAndLosesNothing) {
  const Pair pair = connected(GetParam());
  std::string all;
  for (int i = 0; all.size() < (std::size_t{8} << 20); ++i) all += std::to_string(i) + ",";
  SendQueue queue;
  queue.add(all);
  queue.push(*pair.here);
  ASSERT_LT(queue.size(), all.size());
  ASSERT_FALSE(queue.empty());  // nobody receives: it does not block
  std::string arrived;
  std::thread reader([&] { arrived = receive_all(*pair.there, all.size()); });
  const double until = now() + 10;
  while (!queue.empty() && now() < until) {
    wait_for(pair.here->descriptor(), true);
    queue.push(*pair.here);
  }
  reader.join();
  EXPECT_TRUE(arrived == all) << arrived.size() << " of " << all.size();
}

TEST_P(SocketTest, TheEndComesAfterWhatWasSent) {
  Pair pair = connected(GetParam());
  EXPECT_EQ(pair.here->send("last"), 4u);
  pair.here->finish_sending();
  EXPECT_EQ(receive_all(*pair.there, 100), "last");
  EXPECT_EQ(pair.there->receive(), std::nullopt);
  EXPECT_EQ(pair.there->send("answer"), 6u);  // the other way is open
  EXPECT_EQ(receive_all(*pair.here, 6), "answer");
}

TEST_P(SocketTest, AnEndThatIsGoneIsAnErrorOfSendAndNoSignal) {
  Pair pair = connected(GetParam());
  EXPECT_EQ(pair.there->send("unread"), 6u);
  wait_for(pair.here->descriptor());
  pair.here.reset();  // with unread bytes: a reset
  std::string message;
  const double until = now() + 5;
  while (message.empty() && now() < until) {
    try {
      pair.there->send("x");
    } catch (const Error& error) {
      message = error.what();
      EXPECT_EQ(error.code(), ExitCode::kRankLost);
      EXPECT_EQ(error.component(), "socket");
    }
  }
  EXPECT_TRUE(message == "socket: send: Broken pipe" || message == "socket: send: Connection reset by peer") << message;
  EXPECT_EQ(pair.there->receive(), std::nullopt);
  EXPECT_EQ(pair.there->receive(), std::nullopt);
}

TEST_P(SocketTest, NobodyToAccept) {
  const auto listener = GetParam() ? listen_tcp("127.0.0.1") : listen_locally();
  EXPECT_EQ(listener->accept(), nullptr);
}

TEST_P(SocketTest, ConnectingToNobodyFailsAtOnce) {
  auto listener = GetParam() ? listen_tcp("127.0.0.1") : listen_locally();
  const std::string address = listener->address();
  listener.reset();
  const double begin = now();
  try {
    connect_to(address, Seconds{5});
    FAIL() << "connected to " << address;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kRankLost);
    EXPECT_EQ(std::string(error.what()), "socket: connect to " + address + ": Connection refused");
  }
  EXPECT_LT(now() - begin, 2);
}

INSTANTIATE_TEST_SUITE_P(Local, SocketTest, testing::Values(false));
INSTANTIATE_TEST_SUITE_P(Tcp, SocketTest, testing::Values(true));

TEST(Socket, AddressesThatAreNoneAreRefused) {
  const auto refusal = [](const std::string& address) {
    try {
      connect_to(address, Seconds{1});
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("connected");
  };
  EXPECT_EQ(refusal("nowhere"), "socket: address nowhere: it begins with neither local: nor tcp:");
  EXPECT_EQ(refusal("local:"), "socket: address local:: no name");
  EXPECT_EQ(refusal("local:" + std::string(108, 'x')), "socket: address local:" + std::string(108, 'x') + ": no name");
  EXPECT_EQ(refusal("tcp:host"), "socket: address tcp:host: it is none of tcp:HOST:PORT");
  for (const std::string port : {"", "0", "65536", "12x", "-1"}) {
    EXPECT_EQ(refusal("tcp:127.0.0.1:" + port),
              "socket: address tcp:127.0.0.1:" + port + ": the port is no number of 1 to 65535");
  }
}

// A listener of the system's own that takes no more than its backlog, and nobody accepts.
TEST(Socket, ConnectingGivesUpAtItsDeadline) {
  const int full = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  ASSERT_EQ(::bind(full, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(full, 0), 0);
  ASSERT_EQ(::getsockname(full, reinterpret_cast<sockaddr*>(&address), &size), 0);
  const std::string text = "tcp:127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  std::vector<std::unique_ptr<Connection>> taken;
  double waited = 0;
  for (int i = 0; i < 8 && waited == 0; ++i) {
    const double begin = now();
    try {
      taken.push_back(connect_to(text, Seconds{0.3}));
    } catch (const Error& error) {
      waited = now() - begin;
      EXPECT_EQ(std::string(error.what()), "socket: connect to " + text + ": Connection timed out");
    }
  }
  ::close(full);
  EXPECT_GE(waited, 0.3);
  EXPECT_LT(waited, 2);
}

TEST(Socket, LocalNamesDiffer) {
  const auto first = listen_locally();
  const auto second = listen_locally();
  EXPECT_EQ(first->address().rfind("local:trireme-", 0), 0u);
  EXPECT_NE(first->address(), second->address());
}

TEST(Socket, SecretsAreLongAndDiffer) {
  const std::string secret = random_secret();
  EXPECT_EQ(secret.size(), 64u);
  EXPECT_EQ(secret.find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_NE(secret, random_secret());
  EXPECT_TRUE(same_secret(secret, std::string(secret)));
  for (std::size_t i = 0; i < secret.size(); ++i) {
    std::string other = secret;
    other[i] ^= 1;
    EXPECT_FALSE(same_secret(secret, other));
  }
  EXPECT_FALSE(same_secret(secret, secret.substr(1)));
  EXPECT_FALSE(same_secret("", secret));
  EXPECT_TRUE(same_secret("", ""));
}

TEST(Socket, WaitingSaysWhoIsReady) {
  const Pair a = connected(false);
  const Pair b = connected(false);
  std::vector<Waited> waited{{a.there->descriptor()}, {b.there->descriptor()}, {-1}};
  double begin = now();
  wait_for_any(waited, Seconds{0.05});
  EXPECT_GE(now() - begin, 0.05);
  EXPECT_FALSE(waited[0].ready || waited[1].ready || waited[2].ready);
  b.here->send("x");
  wait_for_any(waited, Seconds{5});
  EXPECT_FALSE(waited[0].ready);
  EXPECT_TRUE(waited[1].ready);
  waited[0].wants_to_send = true;
  wait_for_any(waited, Seconds{0});
  EXPECT_TRUE(waited[0].ready);
  begin = now();
  wait_for_any({}, Seconds{-1});
  EXPECT_LT(now() - begin, 1);
}

TEST(Socket, ASignalEndsTheWait) {
  struct sigaction action = {};
  struct sigaction before = {};
  action.sa_handler = [](int) {};
  ::sigaction(SIGUSR1, &action, &before);
  const pthread_t waiting = ::pthread_self();
  std::thread other([&] {
    posix_env().sleep(Seconds{0.1});
    ::pthread_kill(waiting, SIGUSR1);
  });
  const double begin = now();
  wait_for_any({}, Seconds{20});
  EXPECT_LT(now() - begin, 10);
  other.join();
  ::sigaction(SIGUSR1, &before, nullptr);
}

}  // namespace
}  // namespace trireme
