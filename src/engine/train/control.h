#pragma once

// What ranks tell each other beside the training itself: the leader's decisions, and what it wants to know of all. Over
// a group of all ranks, which nobody counts as traffic of the layout. Every call is made by all ranks.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/comm/communicator.h"
#include "telemetry/trace.h"

namespace trireme::train {

class Control {
 public:
  // Rank `rank` of `ranks`; rank 0 leads. `factory` may be null where there is one.
  Control(int rank, int ranks, const comm::CommunicatorFactory& factory);

  bool leads() const { return group_->index() == 0; }
  int rank() const { return group_->index(); }
  int ranks() const { return group_->size(); }

  // The leader's word.
  std::int64_t decide(std::int64_t leaders_word);
  // Every rank's text, by rank, on the leader; empty elsewhere.
  std::vector<std::string> gather(const std::string& text);
  // Every rank's text, by rank, on all.
  std::vector<std::string> share(const std::string& text);

  // How every rank's steady clock stands to the leader's, by rank, on the leader; empty elsewhere. hosts: of all ranks.
  // Ranks of one host share its clock; another host's is taken from the fastest of a few messages there and back.
  std::vector<telemetry::ClockOffset> clocks(const std::vector<std::string>& hosts);

  // Floats from one rank to the leader. Both block.
  void send_to_leader(std::span<const float> values);
  void receive_from(int rank, std::span<float> values);

 private:
  telemetry::ClockOffset clock_of(int rank);  // the leader's side
  void answer_clock();                        // the other's

  std::unique_ptr<comm::Communicator> group_;
};

}  // namespace trireme::train
