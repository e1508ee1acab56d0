#include "engine/comm/message_world.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <span>
#include <string_view>
#include <thread>

#include <fmt/format.h>

#include "base/check.h"
#include "base/error.h"
#include "base/random.h"
#include "base/wait_clock.h"
#include "engine/comm/message_operations.h"

namespace trireme::comm {
namespace {

constexpr int kNoticeTag = 0;
constexpr int kPollsBeforeYield = 64;        // some microseconds
constexpr Seconds kBusy{2e-3}, kNap{50e-6};  // a wait looks all the time for so long, then every so often
constexpr Seconds kTimeToTell{0.2};          // what a dying rank spends on telling the others

void put_text(std::span<char> to, std::string_view text) {
  const std::size_t length = std::min(text.size(), to.size() - 1);
  std::copy_n(text.data(), length, to.data());
  to[length] = '\0';
}

}  // namespace

struct MessageWorld::Notice {
  std::int32_t code = 0;
  std::array<char, 256> operation{};
  std::array<char, 764> message{};
};

MessageWorld::MessageWorld(std::shared_ptr<Transport> transport, Env& env, MessageOptions options)
    : transport_(std::move(transport)), env_(env), options_(options) {
  TRIREME_CHECK(options.deadline.count > 0, "a deadline of {} s", options.deadline.count);
  const Bytes segment = options.segments.segment;
  TRIREME_CHECK(segment.count >= 8 && segment.count % 8 == 0 && segment.count <= Transport::kMaxMessage,
                "segments of {} bytes", segment.count);
  TRIREME_CHECK_GT(options.segments.window, 0);
  TRIREME_CHECK_GT(options.direct_window, 0);
  TRIREME_CHECK_GT(options.staged_operations, 0);
  if (transport_->size() == 1) return;
  received_ = std::make_unique<Notice>();
  notice_ticket_ =
      transport_->receive(Transport::kAnyRank, kNoticeTag, std::as_writable_bytes(std::span(received_.get(), 1)));
}

MessageWorld::~MessageWorld() {
  if (!death_) transport_->abandon();
}

MessageGroup MessageWorld::group_of(const GroupName& name) {
  const int own = transport_->rank();
  const auto place = std::find(name.ranks.begin(), name.ranks.end(), own);
  TRIREME_CHECK(place != name.ranks.end(), "rank {} is not in its own group over {}", own, name.axis);
  std::string text = name.axis;
  for (const int rank : name.ranks) {
    TRIREME_CHECK(rank >= 0 && rank < transport_->size(), "rank {} of a world of {}", rank, transport_->size());
    TRIREME_CHECK(std::count(name.ranks.begin(), name.ranks.end(), rank) == 1, "rank {} twice over {}", rank,
                  name.axis);
    text += fmt::format(" {}", rank);
  }
  MessageGroup group{.name = name,
                     .index = static_cast<int>(place - name.ranks.begin()),
                     .ids = {},
                     .fingerprint = stream_of("group", text)};
  for (const int rank : name.ranks) group.ids.push_back(rank == own ? 0 : shared_groups_[rank]++);
  return group;
}

void MessageWorld::check_alive(const std::string& operation) const {
  if (death_) death_->throw_dead(operation);
}

void MessageWorld::start(const std::shared_ptr<RunningOperation>& operation) {
  check_alive(operation->text());
  running_.push_back(operation);
  try {
    operation->advance();
  } catch (const TransportError& error) {
    die({error.code(), operation->text(), fmt::format("rank {}: {}", transport_->rank(), error.what())});
  }
  if (operation->complete()) running_.pop_back();
}

bool MessageWorld::progress() {
  check_notice();
  bool moved = false;
  for (auto it = running_.begin(); it != running_.end();) {
    RunningOperation& operation = **it;
    try {
      moved |= operation.advance();
    } catch (const TransportError& error) {
      die({error.code(), operation.text(), fmt::format("rank {}: {}", transport_->rank(), error.what())});
    }
    it = operation.complete() ? running_.erase(it) : std::next(it);
  }
  return moved;
}

void MessageWorld::wait(RunningOperation& operation) {
  if (operation.complete()) return;
  check_alive(operation.text());
  const Seconds deadline = options_.deadline;
  WaitClock clock(env_.now());
  std::int64_t idle_polls = 0;
  while (!operation.complete()) {
    if (progress()) {
      clock.restart(env_.now());
      idle_polls = 0;
      continue;
    }
    if (++idle_polls < kPollsBeforeYield) continue;
    const double waited = clock.look(env_.now()).count;
    if (waited > deadline.count) {
      die({ExitCode::kHang, operation.text(), operation.late_text(format_seconds(deadline))});
    }
    if (waited < kBusy.count) {
      std::this_thread::yield();  // ranks may be more than cores
    } else {
      env_.sleep(kNap);  // a long wait must not take a core from those who are waited for
    }
  }
}

void MessageWorld::set_deadline(Seconds deadline) {
  TRIREME_CHECK(deadline.count > 0, "a deadline of {} s", deadline.count);
  options_.deadline = deadline;
}

void MessageWorld::check_notice() {
  if (!notice_ticket_) return;
  try {
    if (!transport_->test(*notice_ticket_)) return;
  } catch (const TransportError& error) {
    die({error.code(), "progress", fmt::format("rank {}: {}", transport_->rank(), error.what())});
  }
  notice_ticket_.reset();
  death_ = std::make_unique<const Death>(
      Death{static_cast<ExitCode>(received_->code), received_->operation.data(), received_->message.data()});
  transport_->abandon();
  death_->throw_first_error();
}

// The first death counts. What runs stays in memory: the library may still know its messages.
void MessageWorld::die(Death death) {
  if (!death_) {
    death_ = std::make_unique<const Death>(std::move(death));
    tell_others();
  }
  death_->throw_first_error();
}

void MessageWorld::report_lost(const std::string& reason) {
  if (death_) return;
  death_ = std::make_unique<const Death>(
      Death{ExitCode::kRankLost, "wait", fmt::format("rank {} was lost: {}", transport_->rank(), reason)});
  tell_others();
}

void MessageWorld::tell_others() {
  sent_ = std::make_unique<Notice>();
  sent_->code = static_cast<std::int32_t>(death_->code);
  put_text(sent_->operation, death_->operation);
  put_text(sent_->message, death_->message);
  std::vector<Transport::Ticket> tickets;
  const auto attempt = [](const auto& call) {
    try {
      return call();
    } catch (const TransportError&) {
      return true;  // nothing more can be done for that peer
    }
  };
  for (int rank = 0; rank < transport_->size(); ++rank) {
    if (rank == transport_->rank()) continue;
    attempt([&] {
      tickets.push_back(transport_->send(rank, kNoticeTag, std::as_bytes(std::span(sent_.get(), 1))));
      return true;
    });
  }
  const double until = env_.now().count + kTimeToTell.count;
  while (!tickets.empty() && env_.now().count < until) {
    std::erase_if(tickets, [&](Transport::Ticket ticket) { return attempt([&] { return transport_->test(ticket); }); });
    env_.sleep(kNap);
  }
  transport_->abandon();
}

void MessageWorld::close() {
  GroupName all{"world", std::vector<int>(static_cast<std::size_t>(transport_->size()))};
  std::iota(all.ranks.begin(), all.ranks.end(), 0);
  const auto barrier = std::make_shared<Collective>(*this, std::make_shared<const MessageGroup>(group_of(all)), Call{},
                                                    0, nullptr, nullptr);
  start(barrier);
  wait(*barrier);
  TRIREME_CHECK(running_.empty(), "the world ends while {} runs", running_.front()->text());
  if (notice_ticket_) transport_->cancel(*notice_ticket_);
  notice_ticket_.reset();
  death_ = std::make_unique<const Death>(Death{ExitCode::kInternal, "the shut-down", "the world has ended in order"});
}

}  // namespace trireme::comm
