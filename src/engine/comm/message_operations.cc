#include "engine/comm/message_operations.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "engine/comm/reduce.h"

namespace trireme::comm {
namespace {

template <class T>
std::span<std::byte> bytes_of(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

Call call_of(const CallWord& word) {
  return {.operation = static_cast<Operation>(word.operation),
          .count = word.count,
          .dtype = static_cast<DType>(word.dtype),
          .reduction = static_cast<Reduction>(word.reduction),
          .root = word.root};
}

}  // namespace

void Lane::send(std::span<const std::byte> data) {
  under_way_.push_back(transport_->send(peer_, tag_, data));
  ++posted_;
}

void Lane::receive(std::span<std::byte> data) {
  under_way_.push_back(transport_->receive(peer_, tag_, data));
  ++posted_;
}

bool Lane::poll() {
  bool any = false;
  while (!under_way_.empty() && transport_->test(under_way_.front())) {
    under_way_.pop_front();
    any = true;
  }
  return any;
}

StagingTurns::StagingTurns(std::span<std::byte> memory, int limit)
    : limit_(static_cast<std::size_t>(limit)), part_(memory.size() / limit_) {
  for (std::size_t part = 0; part < limit_; ++part) free_.push_back(memory.subspan(part * part_, part_));
}

std::int64_t StagingTurns::draw(std::int64_t bytes) {
  TRIREME_CHECK(bytes <= static_cast<std::int64_t>(part_),
                "a reduction stages {} bytes, and the communicator was given {} x {}", bytes, limit_, part_);
  return drawn_++;
}

bool StagingTurns::try_enter(std::int64_t number) {
  if (number != entered_ || free_.empty()) return false;
  ++entered_;
  return true;
}

std::span<std::byte> StagingTurns::memory() {
  const std::span<std::byte> memory = free_.back();
  free_.pop_back();
  return memory;
}

void StagingTurns::leave(std::span<std::byte> memory) { free_.push_back(memory); }

RunningOperation::RunningOperation(MessageWorld& world, std::shared_ptr<const MessageGroup> group, const Call& call,
                                   std::int64_t sequence, std::shared_ptr<RunningOperation> before)
    : world_(world), group_(std::move(group)), call_(call), sequence_(sequence), before_(std::move(before)) {}

bool RunningOperation::advance() {
  if (complete_) return false;
  if (before_) {
    if (!before_->complete()) return false;
    before_.reset();
  }
  const bool moved = step();
  complete_ = finished();
  if (complete_) completed_at_ = Clock::now();
  return moved || complete_;
}

std::string RunningOperation::who(int member) const { return fmt::format("rank {}", group_->world_rank(member)); }

Lane RunningOperation::lane(int member, TagKind kind, int window) {
  const std::int64_t slot = group_->ids[static_cast<std::size_t>(member)] * kSlots + sequence_ % kSlots;
  const std::int64_t tag = 1 + slot * 4 + static_cast<int>(kind);
  TRIREME_CHECK(tag <= transport().tag_limit(), "too many groups shared with {}: tag {} of {}", who(member), tag,
                transport().tag_limit());
  return {transport(), group_->world_rank(member), static_cast<int>(tag), window};
}

CallWord RunningOperation::own_word() const {
  return {.group = group_->fingerprint,
          .count = call_.count,
          .sequence = sequence_,
          .operation = static_cast<std::int32_t>(call_.operation),
          .dtype = static_cast<std::int32_t>(call_.dtype),
          .reduction = static_cast<std::int32_t>(call_.reduction),
          .root = call_.root};
}

void RunningOperation::check_word(const CallWord& word, int member, const Call& expected) {
  if (word.group != group_->fingerprint || word.sequence != sequence_) {
    world_.die({ExitCode::kInternal, text(),
                fmt::format("{} has another group in this place: two ranks must make the groups that they share in the "
                            "same order, and call the same operations",
                            who(member))});
  }
  const Call theirs = call_of(word);
  if (theirs.agrees_with(expected)) return;
  std::string calls[] = {fmt::format("{} calls {}", who(index()), call_.text()),
                         fmt::format("{} calls {}", who(member), theirs.text())};
  if (member < index()) std::swap(calls[0], calls[1]);
  world_.die({ExitCode::kInternal, text(), fmt::format("ranks disagree: {}, {}", calls[0], calls[1])});
}

std::int64_t RunningOperation::segments_of(Share share) const {
  return divide_up(share.end - share.begin, world_.options().segments.segment.count / element());
}

std::span<std::byte> RunningOperation::segment(Share share, std::int64_t number) const {
  const std::int64_t elements = world_.options().segments.segment.count / element();
  const std::int64_t begin = share.begin + number * elements;
  const std::int64_t end = std::min(begin + elements, share.end);
  return {call_.data + begin * element(), static_cast<std::size_t>((end - begin) * element())};
}

Collective::Collective(MessageWorld& world, std::shared_ptr<const MessageGroup> group, const Call& call,
                       std::int64_t sequence, std::shared_ptr<RunningOperation> before,
                       std::shared_ptr<StagingTurns> turns)
    : RunningOperation(world, std::move(group), call, sequence, std::move(before)), turns_(std::move(turns)) {
  const int direct = world_.options().direct_window;
  peers_.reserve(static_cast<std::size_t>(size()));
  for (int member = 0; member < size(); ++member) {
    if (member == index()) continue;
    peers_.push_back({.member = member,
                      .word_out = lane(member, TagKind::kCall, 1),
                      .word_in = lane(member, TagKind::kCall, 1),
                      .word = {},
                      .out = lane(member, TagKind::kScatter, direct),
                      .in = lane(member, TagKind::kScatter, reduces() ? world_.options().segments.window : direct)});
  }
  words_out_ = own_word();
  if (reduces()) turn_ = turns_->draw(slots() * slot_bytes() * std::ssize(peers_));
  if (!gathers() || size() == 1) return;
  ring_out_ = std::make_unique<Lane>(lane((index() + 1) % size(), TagKind::kGather, direct));
  ring_in_ = std::make_unique<Lane>(lane((index() + size() - 1) % size(), TagKind::kGather, direct));
  for (int distance = 0; distance < size(); ++distance) {
    const int owner = (index() + size() - distance) % size();
    for (std::int64_t number = 0; number < segments_of(share(owner)); ++number) {
      if (distance < size() - 1) to_send_.push_back({owner, number});
      if (distance > 0) to_receive_.push_back({owner, number});
    }
  }
}

Collective::~Collective() = default;

bool Collective::reduces() const {
  return call().operation == Operation::kAllReduce || call().operation == Operation::kReduceScatter;
}

bool Collective::gathers() const {
  return call().operation == Operation::kAllReduce || call().operation == Operation::kAllGather;
}

Collective::Peer& Collective::peer_of(int member) {
  return peers_[static_cast<std::size_t>(member < index() ? member : member - 1)];
}

std::string Collective::late_text(const std::string& waited) const {
  std::string arrived;
  std::string missing;
  for (int member = 0; member < size(); ++member) {
    const bool is_here = member == index() || std::any_of(peers_.begin(), peers_.end(), [&](const Peer& peer) {
                           return peer.member == member && peer.arrived;
                         });
    std::string& list = is_here ? arrived : missing;
    list += fmt::format("{}{}", list.empty() ? "" : ", ", group().world_rank(member));
  }
  if (missing.empty()) {
    return fmt::format("all ranks have called it, but no data have moved for {}; missing: {}", waited, missing_data());
  }
  return fmt::format("waited {}; ranks arrived: {}; missing: {}", waited, arrived, missing);
}

std::string Collective::missing_data() const {
  const auto rank = [&](int member) { return group().world_rank(member); };
  std::string text;
  const auto say = [&](const char* what, int member) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", what, rank(member));
  };
  const bool receives_root = call().operation == Operation::kBroadcast && index() != call().root;
  for (const Peer& peer : peers_) {
    const bool contribution = reduces() && reduced_ < segments_of(own_share()) && peer.in.complete() <= reduced_;
    const bool root_data = receives_root && peer.member == call().root;
    if (contribution || root_data) say("data of", peer.member);
    if (peer.out.complete() < peer.out.posted()) say("a receive by", peer.member);
  }
  if (!text.empty() || !ring_out_) return text;
  if (ring_in_->complete() < std::ssize(to_receive_)) say("data of", (index() + size() - 1) % size());
  if (ring_out_->complete() < ring_out_->posted()) say("a receive by", (index() + 1) % size());
  return text;
}

bool Collective::step() {
  bool moved = step_words();
  if (reduces()) moved |= step_scatter();
  if (ring_out_) moved |= step_gather();
  if (call().operation == Operation::kBroadcast) moved |= step_broadcast();
  return moved;
}

bool Collective::finished() const {
  const bool words = std::all_of(peers_.begin(), peers_.end(),
                                 [](const Peer& peer) { return peer.arrived && peer.word_out.complete() == 1; });
  if (!words) return false;
  if (call().operation == Operation::kBroadcast) {
    const std::int64_t segments = segments_of({0, call().count});
    return std::all_of(peers_.begin(), peers_.end(), [&](const Peer& peer) {
      if (index() == call().root) return peer.out.complete() == segments;
      return peer.member != call().root || peer.in.complete() == segments;
    });
  }
  if (reduces()) {
    if (!staged_ || reduced_ < segments_of(own_share())) return false;
    const bool sent = std::all_of(peers_.begin(), peers_.end(), [&](const Peer& peer) {
      return peer.out.complete() == segments_of(share(peer.member));
    });
    if (!sent) return false;
  }
  return !ring_out_ ||
         (ring_out_->complete() == std::ssize(to_send_) && ring_in_->complete() == std::ssize(to_receive_));
}

bool Collective::step_words() {
  bool moved = false;
  for (Peer& peer : peers_) {
    if (peer.word_out.posted() == 0) {
      peer.word_out.send(bytes_of(words_out_));
      peer.word_in.receive(bytes_of(peer.word));
    }
    moved |= peer.word_out.poll();
    if (!peer.arrived && peer.word_in.poll()) {
      check_word(peer.word, peer.member, call());
      peer.arrived = true;
      moved = true;
    }
  }
  return moved;
}

bool Collective::step_scatter() {
  if (!staged_ && turns_->try_enter(turn_)) {
    staged_ = true;
    staging_ = turns_->memory();
  }
  bool moved = send_shares();
  if (staged_ && reduced_ < segments_of(own_share())) {
    moved |= receive_contributions();
    moved |= reduce_segments();
  }
  if (staged_ && !unstaged_ && reduced_ == segments_of(own_share())) {
    unstaged_ = true;
    turns_->leave(staging_);
  }
  return moved;
}

bool Collective::send_shares() {
  bool moved = false;
  for (Peer& peer : peers_) {
    const Share theirs = share(peer.member);
    while (peer.out.has_room() && peer.out.posted() < segments_of(theirs)) {
      peer.out.send(segment(theirs, peer.out.posted()));
    }
    moved |= peer.out.poll();
  }
  return moved;
}

bool Collective::receive_contributions() {
  bool moved = false;
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    Peer& peer = peers_[i];
    if (!peer.arrived) continue;
    while (peer.in.has_room() && peer.in.posted() < segments_of(own_share()) &&
           peer.in.posted() - reduced_ < world_.options().segments.window) {
      peer.in.receive(staging_slot(i, peer.in.posted()));
    }
    moved |= peer.in.poll();
  }
  return moved;
}

std::int64_t Collective::slot_bytes() const {
  return std::min(world_.options().segments.segment.count, (own_share().end - own_share().begin) * element());
}

std::int64_t Collective::slots() const {
  return std::min<std::int64_t>(world_.options().segments.window, segments_of(own_share()));
}

std::span<std::byte> Collective::staging_slot(std::size_t peer, std::int64_t segment_number) {
  const std::int64_t place = (static_cast<std::int64_t>(peer) * slots() + segment_number % slots()) * slot_bytes();
  return staging_.subspan(static_cast<std::size_t>(place), segment(own_share(), segment_number).size());
}

bool Collective::reduce_segments() {
  const std::int64_t before = reduced_;
  std::vector<const std::byte*> sources(static_cast<std::size_t>(size()));
  const auto has_next = [&](const Peer& peer) { return peer.in.complete() > reduced_; };
  while (reduced_ < segments_of(own_share()) && std::all_of(peers_.begin(), peers_.end(), has_next)) {
    const std::span<std::byte> own = segment(own_share(), reduced_);
    for (std::size_t i = 0; i < peers_.size(); ++i) {
      sources[static_cast<std::size_t>(peers_[i].member)] = staging_slot(i, reduced_).data();
    }
    sources[static_cast<std::size_t>(index())] = own.data();
    reduce_in_order(call().dtype, call().reduction, sources, own.data(), {0, std::ssize(own) / element()});
    ++reduced_;
  }
  return reduced_ != before;
}

bool Collective::step_gather() {
  // In an all-reduce a share may be overwritten once this rank's own contribution to it has left.
  const bool after_scatter = reduces();
  const std::int64_t own_segments = segments_of(own_share());
  const std::int64_t own_ready = after_scatter ? reduced_ : own_segments;
  const auto may_receive = [&](const Passing& passing) {
    return !after_scatter || peer_of(passing.owner).out.complete() > passing.number;
  };
  bool moved = false;
  if (peer_of((index() + size() - 1) % size()).arrived) {
    while (ring_in_->has_room() && ring_in_->posted() < std::ssize(to_receive_)) {
      const Passing& next = to_receive_[static_cast<std::size_t>(ring_in_->posted())];
      if (!may_receive(next)) break;
      ring_in_->receive(segment(share(next.owner), next.number));
    }
    moved |= ring_in_->poll();
  }
  while (ring_out_->has_room() && ring_out_->posted() < std::ssize(to_send_)) {
    const std::int64_t number = ring_out_->posted();
    const bool is_ready = number < own_segments ? number < own_ready : ring_in_->complete() > number - own_segments;
    if (!is_ready) break;
    const Passing& next = to_send_[static_cast<std::size_t>(number)];
    ring_out_->send(segment(share(next.owner), next.number));
  }
  moved |= ring_out_->poll();
  return moved;
}

bool Collective::step_broadcast() {
  const Share whole{0, call().count};
  bool moved = false;
  for (Peer& peer : peers_) {
    if (index() == call().root) {
      while (peer.out.has_room() && peer.out.posted() < segments_of(whole)) {
        peer.out.send(segment(whole, peer.out.posted()));
      }
      moved |= peer.out.poll();
    } else if (peer.member == call().root && peer.arrived) {
      while (peer.in.has_room() && peer.in.posted() < segments_of(whole)) {
        peer.in.receive(segment(whole, peer.in.posted()));
      }
      moved |= peer.in.poll();
    }
  }
  return moved;
}

Message::Message(MessageWorld& world, std::shared_ptr<const MessageGroup> group, const Call& call, int peer,
                 std::int64_t sequence, std::shared_ptr<RunningOperation> before)
    : RunningOperation(world, std::move(group), call, sequence, std::move(before)),
      peer_(peer),
      lane_(lane(peer, TagKind::kMessage, world.options().direct_window)) {}

std::string Message::late_text(const std::string& waited) const {
  return fmt::format("{} waited {} for the {} of {}", who(index()), waited,
                     call().operation == Operation::kSend ? "receive" : "send", who(peer_));
}

bool Message::step() {
  const bool sends = call().operation == Operation::kSend;
  const Share whole{0, call().count};
  if (lane_.posted() == 0) {
    if (sends) {
      word_ = own_word();
      lane_.send(bytes_of(word_));
    } else {
      lane_.receive(bytes_of(word_));
    }
  }
  bool moved = lane_.poll();
  if (!sends && !checked_) {
    if (lane_.complete() == 0) return moved;
    Call expected = call();
    expected.operation = Operation::kSend;
    check_word(word_, peer_, expected);
    checked_ = true;
  }
  while (lane_.has_room() && lane_.posted() - 1 < segments_of(whole)) {
    const std::span<std::byte> data = segment(whole, lane_.posted() - 1);
    sends ? lane_.send(data) : lane_.receive(data);
  }
  moved |= lane_.poll();
  return moved;
}

bool Message::finished() const { return lane_.complete() == 1 + segments_of({0, call().count}); }

}  // namespace trireme::comm
