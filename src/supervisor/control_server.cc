#include "supervisor/control_server.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include "base/error.h"

namespace trireme::supervisor {
namespace {

using telemetry::FrameReader;
using telemetry::Hello;
using telemetry::Message;

// Of one connection in one call of work(): the others have their turn.
constexpr int kReceivesAtOnce = 16;
// Each call, so that a flood of connections does not keep it from its peers.
constexpr int kAcceptsAtOnce = 1024;

struct Peer {
  PeerId id = 0;  // 0: has not proved itself
  double since = 0;
  std::string other_end = {};  // while it has not proved itself
  std::unique_ptr<Connection> connection;
  FrameReader reader{telemetry::kMostHelloBytes};
  SendQueue unsent;
  bool sends = true;       // false once the other end takes nothing any more; what it has sent may still be there
  bool overflown = false;  // it does not take what it is sent
  bool heard = true;       // since it was last told that the supervisor lives
};

enum class Standing { kFine, kEnded, kBroken };

void push(Peer& peer) {
  if (!peer.sends) return;
  try {
    peer.unsent.push(*peer.connection);
  } catch (const Error&) {
    peer.sends = false;
    peer.unsent.clear();
  }
}

}  // namespace

struct ControlServer::State {
  Env& env;
  std::unique_ptr<Listener> listener;
  std::string secret;
  std::optional<std::int64_t> incarnation = std::nullopt;
  std::vector<Peer> unproved = {};  // oldest first
  std::map<PeerId, Peer> peers = {};
  PeerId last_id = 0;
  std::int64_t dropped = 0;
  double said_at = 0;

  bool proves(const Message& message) const {
    const Hello* hello = std::get_if<Hello>(&message);
    return hello != nullptr && same_secret(hello->secret, secret) && incarnation == hello->incarnation;
  }
  void queue(Peer& peer, const std::string& frame) const {
    if (!peer.sends || peer.overflown) return;
    peer.unsent.add(frame);
    push(peer);
    peer.overflown = peer.unsent.size() > kMostUnsentBytes;
  }

  void accept_all(News& news);
  void make_place(const std::string& other_end);
  Standing receive(Peer& peer, News& news);
  Standing take_messages(Peer& peer, News& news);
  bool stays(Peer& peer, News& news);
  void look_at_unproved(News& news);
  void look_at_peers(News& news);
  void say_still_here();
};

void ControlServer::State::make_place(const std::string& other_end) {
  const auto of_it = [&](const Peer& peer) { return peer.other_end == other_end; };
  auto oldest = unproved.begin();
  if (std::ranges::count_if(unproved, of_it) >= kMostOfOneEnd) {
    oldest = std::ranges::find_if(unproved, of_it);
  } else if (std::ssize(unproved) < kMostUnproved) {
    return;
  }
  unproved.erase(oldest);
  ++dropped;
}

// What has arrived is read at once, so that those who prove themselves take no place from others.
void ControlServer::State::accept_all(News& news) {
  for (int i = 0; i < kAcceptsAtOnce; ++i) {
    std::unique_ptr<Connection> connection = listener->accept();
    if (connection == nullptr) return;
    Peer peer;
    peer.since = env.now().count;
    peer.connection = std::move(connection);
    if (!stays(peer, news)) continue;
    if (peer.id == 0) {
      peer.other_end = peer.connection->other_end();
      make_place(peer.other_end);
      unproved.push_back(std::move(peer));
    } else {
      peers.emplace(peer.id, std::move(peer));
    }
  }
}

Standing ControlServer::State::receive(Peer& peer, News& news) {
  if (peer.overflown) return Standing::kBroken;
  for (int i = 0; i < kReceivesAtOnce; ++i) {
    const std::optional<std::string> bytes = peer.connection->receive();
    if (!bytes) return Standing::kEnded;
    if (bytes->empty()) return peer.sends ? Standing::kFine : Standing::kEnded;
    peer.heard = true;
    peer.reader.add(*bytes);
    if (take_messages(peer, news) == Standing::kBroken) return Standing::kBroken;
  }
  return Standing::kFine;
}

Standing ControlServer::State::take_messages(Peer& peer, News& news) {
  while (true) {
    const Result<std::optional<Message>> next = peer.reader.next();
    if (!next) return Standing::kBroken;
    if (!*next) return Standing::kFine;
    const Message& message = **next;
    if (peer.id == 0) {
      if (!proves(message)) return Standing::kBroken;
      peer.id = ++last_id;
      peer.reader.set_most_bytes(telemetry::kMostMessageBytes);
    } else if (std::holds_alternative<Hello>(message) || telemetry::is_for_workers(message)) {
      return Standing::kBroken;
    }
    news.messages.push_back({peer.id, message});
  }
}

// Receives; false where that was the end, which is then told.
bool ControlServer::State::stays(Peer& peer, News& news) {
  const Standing standing = receive(peer, news);
  if (standing == Standing::kFine) return true;
  if (standing == Standing::kBroken || peer.id == 0) ++dropped;
  if (peer.id != 0) news.gone.push_back(peer.id);
  return false;
}

void ControlServer::State::look_at_unproved(News& news) {
  std::vector<Peer> left;
  for (Peer& peer : unproved) {
    if (!stays(peer, news)) continue;
    if (peer.id != 0) {
      peers.emplace(peer.id, std::move(peer));
    } else if (env.now().count - peer.since > kHelloWithin_s) {
      ++dropped;
    } else {
      left.push_back(std::move(peer));
    }
  }
  unproved = std::move(left);
}

void ControlServer::State::look_at_peers(News& news) {
  for (auto entry = peers.begin(); entry != peers.end();) {
    push(entry->second);
    entry = stays(entry->second, news) ? std::next(entry) : peers.erase(entry);
  }
}

void ControlServer::State::say_still_here() {
  const double now = env.now().count;
  if (now - said_at < telemetry::kAliveEvery_s) return;
  said_at = now;
  const std::string frame = telemetry::to_frame(telemetry::StillHere{});
  for (auto& [id, peer] : peers) {
    if (std::exchange(peer.heard, false)) queue(peer, frame);
  }
}

ControlServer::ControlServer(Env& env, std::unique_ptr<Listener> listener, std::string secret)
    : state_(new State{env, std::move(listener), std::move(secret)}) {
  state_->said_at = env.now().count;
}

ControlServer::~ControlServer() = default;

std::string ControlServer::address() const { return state_->listener->address(); }

void ControlServer::begin_incarnation(std::int64_t incarnation) {
  state_->incarnation = incarnation;
  state_->peers.clear();
}

void ControlServer::add_waited(std::vector<Waited>& waited) const {
  waited.push_back({state_->listener->descriptor()});
  for (const Peer& peer : state_->unproved) waited.push_back({peer.connection->descriptor()});
  for (const auto& [id, peer] : state_->peers) {
    waited.push_back({peer.connection->descriptor(), !peer.unsent.empty()});
  }
}

ControlServer::News ControlServer::work() {
  News news;
  state_->look_at_peers(news);
  state_->look_at_unproved(news);
  state_->accept_all(news);
  state_->say_still_here();
  return news;
}

void ControlServer::send(PeerId peer, const Message& message) {
  const auto found = state_->peers.find(peer);
  if (found != state_->peers.end()) state_->queue(found->second, telemetry::to_frame(message));
}

std::int64_t ControlServer::dropped() const { return state_->dropped; }

}  // namespace trireme::supervisor
