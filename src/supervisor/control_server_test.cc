#include "supervisor/control_server.h"

#include <sys/resource.h>

#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/fake_env.h"
#include "telemetry/control_line.h"

namespace trireme::supervisor {
namespace {

using telemetry::Alive;
using telemetry::FrameReader;
using telemetry::Hello;
using telemetry::Message;
using telemetry::RankEnded;
using telemetry::Saved;
using telemetry::StillHere;
using telemetry::to_frame;

constexpr std::string_view kSecret = "0123456789abcdef";

std::string text(const Message& message) { return telemetry::to_json(message).dump(); }

// A server whose clock stands still, and its clients.
class ControlServerTest : public testing::Test {
 protected:
  ControlServerTest() : server_(env_, listen_locally(), std::string(kSecret)) { server_.begin_incarnation(3); }

  std::unique_ptr<Connection> client() { return connect_to(server_.address(), Seconds{5}); }
  static Hello hello(std::int64_t incarnation = 3) { return {std::string(kSecret), incarnation, false, {0}, "a", 1}; }
  static void send(Connection& connection, std::string_view bytes) { EXPECT_EQ(connection.send(bytes), bytes.size()); }
  std::unique_ptr<Connection> peer() {
    auto connection = client();
    send(*connection, to_frame(hello()));
    work();
    EXPECT_EQ(take_messages(), std::vector<std::string>{fmt_of(++last_peer_, hello())});
    return connection;
  }

  // Local sockets deliver at once: one call sees all that was sent before it.
  void work() {
    ControlServer::News news = server_.work();
    for (const PeerMessage& one : news.messages) messages_.push_back(fmt_of(one.peer, one.message));
    gone_.insert(gone_.end(), news.gone.begin(), news.gone.end());
  }
  static std::string fmt_of(PeerId peer, const Message& message) { return std::to_string(peer) + " " + text(message); }
  std::vector<std::string> take_messages() { return std::exchange(messages_, {}); }
  std::vector<PeerId> take_gone() { return std::exchange(gone_, {}); }
  // What has arrived at a client, each message as text; "end" where the connection is over.
  static std::vector<std::string> received(Connection& connection) {
    std::vector<std::string> texts;
    FrameReader reader(telemetry::kMostMessageBytes);
    while (true) {
      const auto bytes = connection.receive();
      if (!bytes) texts.emplace_back("end");
      if (!bytes || bytes->empty()) return texts;
      reader.add(*bytes);
      while (const auto message = reader.next().or_throw()) texts.push_back(text(*message));
    }
  }
  static bool is_over(Connection& connection) { return received(connection) == std::vector<std::string>{"end"}; }

  FakeEnv env_;
  ControlServer server_;
  PeerId last_peer_ = 0;
  std::vector<std::string> messages_;
  std::vector<PeerId> gone_;
};

TEST_F(ControlServerTest, DeliversInOrderThenSaysWhoIsGone) {
  auto first = client();
  send(*first, to_frame(hello()) + to_frame(Saved{1}) + to_frame(Saved{2}));
  work();
  EXPECT_EQ(take_messages(), (std::vector<std::string>{fmt_of(1, hello()), fmt_of(1, Saved{1}), fmt_of(1, Saved{2})}));
  send(*first, to_frame(RankEnded{0, 0, ""}));
  first.reset();
  work();
  EXPECT_EQ(take_messages(), std::vector<std::string>{fmt_of(1, RankEnded{0, 0, ""})});
  EXPECT_EQ(take_gone(), std::vector<PeerId>{1});
  work();
  EXPECT_TRUE(take_gone().empty());
  EXPECT_EQ(server_.dropped(), 0);
  server_.send(1, telemetry::Stop{});  // passed over
}

TEST_F(ControlServerTest, AWholeLifeBetweenTwoLooks) {
  auto short_lived = client();
  send(*short_lived, to_frame(hello()) + to_frame(Saved{1}));
  short_lived.reset();
  work();
  EXPECT_EQ(take_messages(), (std::vector<std::string>{fmt_of(1, hello()), fmt_of(1, Saved{1})}));
  EXPECT_EQ(take_gone(), std::vector<PeerId>{1});
}

TEST_F(ControlServerTest, SaysStillHereEachHalfSecondAndWhatItIsTold) {
  const auto first = peer();
  const auto second = peer();
  EXPECT_TRUE(received(*first).empty());
  server_.send(1, telemetry::Stop{});
  EXPECT_EQ(received(*first), std::vector<std::string>{text(telemetry::Stop{})});
  env_.advance(Seconds{0.49});
  work();
  EXPECT_TRUE(received(*first).empty());
  env_.advance(Seconds{0.02});
  work();
  work();
  EXPECT_EQ(received(*first), std::vector<std::string>{text(StillHere{})});
  EXPECT_EQ(received(*second), std::vector<std::string>{text(StillHere{})});
}

TEST_F(ControlServerTest, WhoSaysNothingIsDropped) {
  const auto silent = client();
  const auto half = client();
  const std::string whole = to_frame(hello());
  send(*half, whole.substr(0, whole.size() - 1));
  work();
  env_.advance(Seconds{1.99});
  work();
  EXPECT_EQ(server_.dropped(), 0);
  send(*half, "");
  env_.advance(Seconds{0.02});
  work();
  EXPECT_EQ(server_.dropped(), 2);
  EXPECT_TRUE(is_over(*silent));
  EXPECT_TRUE(is_over(*half));
  EXPECT_TRUE(take_messages().empty());
  EXPECT_TRUE(take_gone().empty());  // they never were peers
}

TEST_F(ControlServerTest, AHelloMayComeInPieces) {
  const auto slow = client();
  const std::string whole = to_frame(hello());
  for (const char byte : whole) {
    EXPECT_TRUE(take_messages().empty());
    send(*slow, std::string(1, byte));
    work();
  }
  EXPECT_EQ(take_messages(), std::vector<std::string>{fmt_of(1, hello())});
  EXPECT_EQ(server_.dropped(), 0);
}

TEST_F(ControlServerTest, WhoDoesNotProveItselfIsDroppedAtOnce) {
  Hello wrong_secret = hello();
  wrong_secret.secret.back() ^= 1;
  Hello no_secret = hello();
  no_secret.secret.clear();
  Hello too_long = hello();
  too_long.host.assign(telemetry::kMostHelloBytes, 'x');
  const std::vector<std::string> cases = {
      to_frame(wrong_secret),
      to_frame(no_secret),
      to_frame(too_long),
      to_frame(hello(2)),
      to_frame(hello(4)),
      to_frame(Saved{1}),
      to_frame(Saved{1}) + to_frame(hello()),
      "GET / HTTP/1.1\r\n\r\n",
      std::string(100, '\0'),
      std::string(100'000, '\xFF'),
      to_frame(hello()).substr(0, 4) + std::string(200, '['),
  };
  std::int64_t dropped = 0;
  for (const std::string& bytes : cases) {
    const auto bad = client();
    send(*bad, bytes);
    work();
    EXPECT_EQ(server_.dropped(), ++dropped) << bytes.substr(0, 100);
    EXPECT_TRUE(is_over(*bad)) << bytes.substr(0, 100);
    EXPECT_TRUE(take_messages().empty());
    EXPECT_TRUE(take_gone().empty());
  }
}

TEST_F(ControlServerTest, APeerThatBreaksTheRulesIsDroppedAfterWhatItSaidBefore) {
  std::string long_prefix = "\0\0\0\1";
  long_prefix.assign("\1\0\0\1", 4);  // one byte more than is taken
  std::int64_t dropped = 0;
  for (const std::string& bytes : {to_frame(hello()), to_frame(telemetry::Kill{}), to_frame(StillHere{}), long_prefix,
                                   std::string("\2\0\0\0{]", 6)}) {
    const auto bad = peer();
    send(*bad, to_frame(Saved{7}) + bytes + to_frame(Saved{8}));
    work();
    EXPECT_EQ(take_messages(), std::vector<std::string>{fmt_of(last_peer_, Saved{7})});
    EXPECT_EQ(take_gone(), std::vector<PeerId>{last_peer_});
    EXPECT_EQ(server_.dropped(), ++dropped);
    EXPECT_TRUE(is_over(*bad));
  }
}

TEST_F(ControlServerTest, APeerMaySendMoreThanAHello) {
  const auto large = peer();
  const Message message = RankEnded{0, 70, std::string(std::size_t{1} << 20, 'x')};
  const std::string frame = to_frame(message);
  for (std::size_t sent = 0; sent < frame.size();) {
    sent += large->send(std::string_view(frame).substr(sent));
    work();
  }
  EXPECT_EQ(take_messages(), std::vector<std::string>{fmt_of(1, message)});
}

TEST_F(ControlServerTest, OldIncarnationsAreForgotten) {
  const auto old = peer();
  send(*old, to_frame(Saved{1}));
  server_.begin_incarnation(4);
  EXPECT_TRUE(is_over(*old));
  const auto late = client();
  send(*late, to_frame(hello(3)));
  work();
  EXPECT_TRUE(take_messages().empty());
  EXPECT_TRUE(take_gone().empty());
  EXPECT_EQ(server_.dropped(), 1);
  const auto present = client();
  send(*present, to_frame(hello(4)));
  work();
  EXPECT_EQ(take_messages(), std::vector<std::string>{fmt_of(2, hello(4))});  // a number of its own
}

TEST_F(ControlServerTest, BeforeTheFirstIncarnationNobodyIsLetIn) {
  ControlServer fresh(env_, listen_locally(), std::string(kSecret));
  const auto early = connect_to(fresh.address(), Seconds{5});
  send(*early, to_frame(hello(0)));
  EXPECT_TRUE(fresh.work().messages.empty());
  EXPECT_EQ(fresh.dropped(), 1);
}

TEST_F(ControlServerTest, APeerThatTakesNothingIsDropped) {
  const auto stuck = peer();
  const auto fine = peer();
  const Message large = RankEnded{0, 0, std::string(std::size_t{8} << 20, 'x')};
  for (int i = 0; i < 8; ++i) server_.send(1, large);
  work();
  EXPECT_TRUE(take_gone().empty());
  server_.send(1, large);
  server_.send(1, large);
  work();
  EXPECT_EQ(take_gone(), std::vector<PeerId>{1});
  EXPECT_EQ(server_.dropped(), 1);
  server_.send(2, telemetry::Stop{});
  EXPECT_EQ(received(*fine), std::vector<std::string>{text(telemetry::Stop{})});
}

TEST_F(ControlServerTest, ASlowPeerGetsAll) {
  const auto slow = peer();
  const Message large = RankEnded{0, 0, std::string(std::size_t{4} << 20, 'x')};
  server_.send(1, large);
  std::vector<Waited> waited;
  server_.add_waited(waited);
  ASSERT_EQ(waited.size(), 2u);
  EXPECT_FALSE(waited[0].wants_to_send);
  EXPECT_TRUE(waited[1].wants_to_send);
  FrameReader reader(telemetry::kMostMessageBytes);
  int calls = 0;
  bool whole = false;
  while (!whole && ++calls < 10'000) {
    reader.add(slow->receive().value());
    const auto message = reader.next().or_throw();
    whole = message && text(*message) == text(large);
    work();
  }
  EXPECT_TRUE(whole);
  waited.clear();
  server_.add_waited(waited);
  EXPECT_FALSE(waited[1].wants_to_send);
}

// The last words of a peer count although it takes nothing any more.
TEST_F(ControlServerTest, WhatAPeerSaidBeforeItsEndIsHeardThoughSendingFails) {
  auto last = peer();
  send(*last, to_frame(Saved{1}));
  last.reset();
  server_.send(1, telemetry::Stop{});
  env_.advance(Seconds{1});
  work();
  EXPECT_EQ(take_messages(), std::vector<std::string>{fmt_of(1, Saved{1})});
  EXPECT_EQ(take_gone(), std::vector<PeerId>{1});
}

void allow_descriptors(rlim_t count) {
  rlimit limit = {};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = std::max(limit.rlim_cur, std::min(count, limit.rlim_max));
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  ASSERT_GE(limit.rlim_cur, count);
}

TEST_F(ControlServerTest, AThousandThatSayNothingHaveABound) {
  allow_descriptors(2000);
  const auto here = peer();
  std::vector<std::unique_ptr<Connection>> crowd;
  for (int i = 0; i < 1000; ++i) crowd.push_back(client());
  const auto late = client();
  send(*late, to_frame(hello()));
  work();
  EXPECT_EQ(take_messages().size(), 1u);  // it waits for none of the crowd before it
  std::vector<Waited> waited;
  server_.add_waited(waited);
  EXPECT_EQ(waited.size(), std::size_t{ControlServer::kMostOfOneEnd} + 3);
  EXPECT_TRUE(take_gone().empty());
  env_.advance(Seconds{3});
  work();
  EXPECT_EQ(server_.dropped(), 1000);
  for (const auto& one : crowd) {
    const auto texts = received(*one);
    ASSERT_EQ(texts, std::vector<std::string>{"end"});
  }
  send(*here, to_frame(Saved{1}));
  work();
  EXPECT_EQ(take_messages(), std::vector<std::string>{fmt_of(1, Saved{1})});
}

TEST_F(ControlServerTest, AThousandThatProveThemselvesAreLetInAtOnce) {
  allow_descriptors(3000);
  std::vector<std::unique_ptr<Connection>> crowd;
  for (int i = 0; i < 1000; ++i) {
    crowd.push_back(client());
    send(*crowd.back(), to_frame(hello()));
  }
  work();
  EXPECT_EQ(take_messages().size(), 1000u);
  EXPECT_EQ(server_.dropped(), 0);
}

// With a real line, over TCP, on the real clock.
TEST(ControlServer, SpeaksWithALine) {
  Env& env = posix_env();
  ControlServer server(env, listen_tcp("127.0.0.1"), std::string(kSecret));
  server.begin_incarnation(1);
  telemetry::LineOptions options;
  options.address = server.address();
  options.hello = {std::string(kSecret), 1, true, {5}, "b", 9};
  options.take = [](const Message&) {};
  options.gone = [](const std::string& why) { ADD_FAILURE() << why; };
  auto line = telemetry::open_control_line(std::move(options));
  line->send(Saved{4});
  std::vector<std::string> texts;
  std::vector<PeerId> gone;
  const double begin = env.now().count;
  while (gone.empty() && env.now().count < begin + 10) {
    std::vector<Waited> waited;
    server.add_waited(waited);
    wait_for_any(waited, Seconds{0.05});
    ControlServer::News news = server.work();
    for (const PeerMessage& one : news.messages) texts.push_back(text(one.message));
    gone.insert(gone.end(), news.gone.begin(), news.gone.end());
    // Longer than the fence: it is told in time that the supervisor lives.
    if (line != nullptr && env.now().count > begin + telemetry::kFence_s + 0.3) {
      line->send(RankEnded{5, 0, ""});
      line.reset();
    }
  }
  EXPECT_EQ(gone, std::vector<PeerId>{1});
  ASSERT_GE(texts.size(), 3u);
  EXPECT_EQ(texts[1], text(Saved{4}));
  EXPECT_EQ(std::count(texts.begin(), texts.end(), text(Alive{})), static_cast<std::ptrdiff_t>(texts.size()) - 3);
  EXPECT_GE(texts.size(), 6u);
  EXPECT_EQ(texts.back(), text(RankEnded{5, 0, ""}));
}

}  // namespace
}  // namespace trireme::supervisor
