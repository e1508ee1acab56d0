#pragma once

// The supervisor's end of the control channel: every connection must begin with a Hello that carries the run's secret
// and the present incarnation, within 2 s and kMostHelloBytes, else it is dropped without a word; later messages are
// bounded too, and a connection that sends anything malformed, a second Hello or what only workers are sent, or that
// does not take what it is sent, is dropped. At most kMostUnproved at once that have not proved themselves,
// kMostOfOneEnd of them from one host: the oldest, of the newcomer's host where that has so many, gives way at once.
// Whoever says its hello with its first breath is let in whatever the crowd. One thread.

#include <memory>
#include <string>
#include <vector>

#include "base/env.h"
#include "base/socket.h"
#include "telemetry/control_message.h"

namespace trireme::supervisor {

using PeerId = int;  // of a connection that has proved itself; never used again

struct PeerMessage {
  PeerId peer = 0;
  telemetry::Message message;  // the first of each is its Hello
};

class ControlServer {
 public:
  static constexpr int kMostUnproved = 256;
  static constexpr int kMostOfOneEnd = 64;
  static constexpr double kHelloWithin_s = 2;
  static constexpr std::size_t kMostUnsentBytes = std::size_t{64} << 20;  // of a peer

  ControlServer(Env& env, std::unique_ptr<Listener> listener, std::string secret);
  ~ControlServer();

  std::string address() const;
  // From now on only this incarnation is let in (before the first call: nobody). Older peers are dropped and never
  // heard of again, as gone neither.
  void begin_incarnation(std::int64_t incarnation);

  // Descriptors to wait for.
  void add_waited(std::vector<Waited>& waited) const;
  // Accepts, receives, sends, drops. What has arrived, in the order of each peer; which peers are gone, after their
  // last messages; says StillHere each half second to those that it has heard since: whoever it does not hear ends
  // itself.
  struct News {
    std::vector<PeerMessage> messages;
    std::vector<PeerId> gone;
  };
  News work();
  void send(PeerId peer, const telemetry::Message& message);  // passed over where it is gone
  std::int64_t dropped() const;  // connections that did not prove themselves, or broke the rules

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trireme::supervisor
