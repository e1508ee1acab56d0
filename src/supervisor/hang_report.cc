#include "supervisor/hang_report.h"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/check.h"

namespace trireme::supervisor {
namespace {

using telemetry::OperationRecord;
using telemetry::Phase;

constexpr std::size_t kMostLines = 16;
constexpr const char* kLeadersWord = "the leader's word";

bool is_send(const OperationRecord& record) { return record.operation.starts_with("send"); }
bool is_receive(const OperationRecord& record) { return record.operation.starts_with("receive"); }
bool is_message(const OperationRecord& record) { return is_send(record) || is_receive(record); }
bool is_unfinished(const OperationRecord& record) { return !record.completed; }

// Whom a message of `rank` may come from or go to, as world ranks.
std::vector<int> peers_of(const OperationRecord& record, int rank) {
  const auto size = std::ssize(record.ranks);
  constexpr std::string_view kIndex = " index ";
  if (const std::size_t at = record.operation.find(kIndex); at != std::string::npos) {
    std::int64_t index = -1;
    const char* begin = record.operation.data() + at + kIndex.size();
    std::from_chars(begin, record.operation.data() + record.operation.size(), index);
    if (index >= 0 && index < size) return {record.ranks[static_cast<std::size_t>(index)]};
  }
  const auto here = std::ranges::find(record.ranks, rank) - record.ranks.begin();
  std::set<int> peers;
  for (const auto index : {(here + 1) % size, (here + size - 1) % size}) {
    peers.insert(record.ranks[static_cast<std::size_t>(index)]);
  }
  peers.erase(rank);
  return {peers.begin(), peers.end()};
}

// Several ranks stand at one operation, which others have not begun.
struct Wait {
  const OperationRecord* record = nullptr;  // of the first that waits; null: rank 0's word
  std::vector<int> waiting = {};
  std::vector<int> arrived = {};
  std::vector<int> missing = {};  // never empty
};

using GroupKey = std::tuple<std::string, std::vector<int>, int>;
GroupKey key_of(const OperationRecord& record) { return {record.axis, record.ranks, record.instance}; }

struct Member {
  std::int64_t begun = 0;             // operations
  std::set<std::string> collectives;  // unfinished ones
  bool receives = false;              // has an unfinished receive
};
struct Group {
  bool has_messages = false;
  std::map<int, Member> members;
};

class Diagnosis {
 public:
  explicit Diagnosis(const HangEvidence& evidence)
      : evidence_(evidence), wait_of_(static_cast<std::size_t>(evidence.ranks), kNone) {
    TRIREME_CHECK_GE(evidence.ranks, 1);
    for (int rank = 0; rank < evidence_.ranks; ++rank) {
      if (!evidence_.records.contains(rank)) report_.silent.push_back(rank);
    }
    collect_groups();
    for (int rank = 0; rank < evidence_.ranks; ++rank) find_wait(rank);
  }

  HangReport report() {
    report_.culprits = report_.silent.empty() ? find_culprits() : report_.silent;
    describe_operation();
    report_.text = sentence();
    append_lines();
    return std::move(report_);
  }

 private:
  static constexpr int kNone = -1;

  const std::vector<OperationRecord>& records(int rank) const {
    static const std::vector<OperationRecord> none;
    const auto found = evidence_.records.find(rank);
    return found == evidence_.records.end() ? none : found->second;
  }
  const telemetry::RankProgress* progress(int rank) const {
    const auto found = evidence_.progress.find(rank);
    return found == evidence_.progress.end() ? nullptr : &found->second;
  }
  bool waits(int rank) const { return wait_of_[static_cast<std::size_t>(rank)] != kNone; }
  bool is_culprit(int rank) const { return std::ranges::binary_search(report_.culprits, rank); }
  // Records come over a connection: one of ranks that the run has not tells nothing.
  bool is_sound(const OperationRecord& record, int rank) const {
    return std::ranges::find(record.ranks, rank) != record.ranks.end() &&
           std::ranges::all_of(record.ranks, [&](int member) { return member >= 0 && member < evidence_.ranks; });
  }

  void collect_groups() {
    for (int rank = 0; rank < evidence_.ranks; ++rank) {
      for (const OperationRecord& record : records(rank)) {
        if (!is_sound(record, rank)) continue;
        Group& group = groups_[key_of(record)];
        group.has_messages |= is_message(record);
        Member& member = group.members[rank];
        member.begun = std::max(member.begun, record.sequence);
        if (!is_unfinished(record)) continue;
        member.receives |= is_receive(record);
        if (!is_message(record)) member.collectives.insert(record.operation);
      }
    }
  }

  bool has_arrived(const Group& group, const OperationRecord& record, int rank) const {
    const auto found = group.members.find(rank);
    if (found == group.members.end()) return false;
    const Member& member = found->second;
    return group.has_messages ? member.collectives.contains(record.operation) : member.begun >= record.sequence;
  }

  std::vector<int> missing_in(const OperationRecord& record, int rank) const {
    if (is_receive(record)) return peers_of(record, rank);
    const Group& group = groups_.at(key_of(record));
    std::vector<int> missing;
    std::ranges::copy_if(record.ranks, std::back_inserter(missing),
                         [&](int member) { return !has_arrived(group, record, member); });
    return missing;
  }

  void find_wait(int rank) {
    for (const OperationRecord& record : records(rank)) {
      if (!is_unfinished(record) || is_send(record) || !is_sound(record, rank)) continue;
      // Members of a collective share one wait, so that a large group takes no square of its size.
      const bool has_messages = groups_.at(key_of(record)).has_messages;
      auto key = std::tuple(key_of(record), has_messages ? record.operation : std::string(),
                            has_messages ? std::int64_t{0} : record.sequence, is_receive(record) ? rank : kNone);
      const auto [at, is_new] = wait_at_.try_emplace(std::move(key), static_cast<int>(waits_.size()));
      if (is_new) add_wait(record, missing_in(record, rank), rank);
      if (waits_[static_cast<std::size_t>(at->second)].missing.empty()) continue;
      return set_wait(rank, at->second);
    }
    const telemetry::RankProgress* here = progress(rank);
    if (rank == 0 || here == nullptr || here->phase != Phase::kIdle || !evidence_.records.contains(rank)) return;
    if (leaders_word_ == kNone) {
      leaders_word_ = static_cast<int>(waits_.size());
      waits_.push_back({.missing = {0}});
    }
    waits_[static_cast<std::size_t>(leaders_word_)].arrived.push_back(rank);
    set_wait(rank, leaders_word_);
  }

  void add_wait(const OperationRecord& record, std::vector<int> missing, int rank) {
    Wait wait{.record = &record, .missing = std::move(missing)};
    if (is_receive(record)) {
      wait.arrived = {rank};
    } else {
      const std::set<int> missed(wait.missing.begin(), wait.missing.end());
      std::ranges::copy_if(record.ranks, std::back_inserter(wait.arrived),
                           [&](int member) { return !missed.contains(member); });
    }
    waits_.push_back(std::move(wait));
  }

  void set_wait(int rank, int wait) {
    wait_of_[static_cast<std::size_t>(rank)] = wait;
    waits_[static_cast<std::size_t>(wait)].waiting.push_back(rank);
  }

  std::vector<int> find_culprits() const {
    const std::vector<int> cycle = waiting_in_cycles();
    std::vector<int> idle = at_earliest_step(waiting_for_nobody());
    std::set<int> waited_for;
    for (const Wait& wait : waits_) {
      if (!wait.waiting.empty()) waited_for.insert(wait.missing.begin(), wait.missing.end());
    }
    std::vector<int> culprits;
    std::ranges::copy_if(idle, std::back_inserter(culprits), [&](int rank) { return waited_for.contains(rank); });
    if (culprits.empty() && cycle.empty()) culprits = std::move(idle);
    culprits = without_senders(std::move(culprits));
    culprits.insert(culprits.end(), cycle.begin(), cycle.end());
    std::ranges::sort(culprits);
    return culprits;
  }

  std::vector<int> waiting_for_nobody() const {
    std::vector<int> ranks;
    for (int rank = 0; rank < evidence_.ranks; ++rank) {
      if (!waits(rank)) ranks.push_back(rank);
    }
    return ranks;
  }

  // All of them where the step of one is not known.
  std::vector<int> at_earliest_step(std::vector<int> ranks) const {
    std::vector<int> earliest;
    std::int64_t step = 0;
    for (const int rank : ranks) {
      const telemetry::RankProgress* here = progress(rank);
      if (here == nullptr) return ranks;
      if (earliest.empty() || here->step < step) {
        step = here->step;
        earliest.clear();
      }
      if (here->step == step) earliest.push_back(rank);
    }
    return earliest;
  }

  std::vector<int> without_senders(std::vector<int> ranks) const {
    const auto is_stuck_in_send = [&](int rank) {
      return std::ranges::any_of(records(rank), [&](const OperationRecord& record) {
        if (!is_unfinished(record) || !is_send(record) || !is_sound(record, rank)) return false;
        const Group& group = groups_.at(key_of(record));
        return std::ranges::any_of(peers_of(record, rank), [&](int peer) {
          const auto member = group.members.find(peer);
          const bool takes = member != group.members.end() && member->second.receives;
          return !takes && std::ranges::find(ranks, peer) != ranks.end();
        });
      });
    };
    std::vector<int> left;
    std::ranges::copy_if(ranks, std::back_inserter(left), [&](int rank) { return !is_stuck_in_send(rank); });
    return left.empty() ? ranks : left;
  }

  // Those whose waits lead to none that waits for nobody, less those that nobody of them waits for.
  std::vector<int> waiting_in_cycles() const {
    std::vector<std::vector<int>> waits_missing(static_cast<std::size_t>(evidence_.ranks));
    for (std::size_t wait = 0; wait < waits_.size(); ++wait) {
      for (const int rank : waits_[wait].missing) {
        waits_missing[static_cast<std::size_t>(rank)].push_back(static_cast<int>(wait));
      }
    }
    std::set<int> left;
    for (int rank = 0; rank < evidence_.ranks; ++rank) left.insert(rank);
    std::vector<int> out = waiting_for_nobody();
    std::set<int> seen;  // waits
    while (!out.empty()) {
      const int rank = out.back();
      out.pop_back();
      if (left.erase(rank) == 0) continue;
      for (const int wait : waits_missing[static_cast<std::size_t>(rank)]) {
        if (!seen.insert(wait).second) continue;
        const std::vector<int>& waiting = waits_[static_cast<std::size_t>(wait)].waiting;
        out.insert(out.end(), waiting.begin(), waiting.end());
      }
    }
    for (bool changed = true; changed;) {
      std::set<int> wanted;
      for (const Wait& wait : waits_) {
        if (std::ranges::any_of(wait.waiting, [&](int rank) { return left.contains(rank); })) {
          wanted.insert(wait.missing.begin(), wait.missing.end());
        }
      }
      changed = std::erase_if(left, [&](int rank) { return !wanted.contains(rank); }) > 0;
    }
    return {left.begin(), left.end()};
  }

  // Of the operations that a culprit is missing in, the one that most ranks stand at.
  void describe_operation() {
    for (const Wait& wait : waits_) {
      const bool misses = std::ranges::any_of(wait.missing, [&](int rank) { return is_culprit(rank); });
      if (misses && (shown_ == nullptr || wait.waiting.size() > shown_->waiting.size())) shown_ = &wait;
    }
    const int who = shown_ == nullptr ? report_.culprits.front() : shown_->waiting.front();
    if (const telemetry::RankProgress* here = progress(who)) report_.step = here->step;
    if (shown_ == nullptr) return;
    report_.arrived = shown_->arrived;
    report_.missing = shown_->missing;
    report_.operation = kLeadersWord;
    if (shown_->record == nullptr) return;
    report_.axis = shown_->record->axis;
    report_.group = shown_->record->ranks;
    report_.operation = shown_->record->operation;
    report_.sequence = shown_->record->sequence;
  }

  static std::string ranks_text(const std::vector<int>& ranks) {
    if (ranks.size() == 1) return fmt::format("rank {}", ranks.front());
    if (ranks.size() <= kMostLines) return fmt::format("ranks {}", fmt::join(ranks, ", "));
    return fmt::format("{} ranks ({}, ...)", ranks.size(),
                       fmt::join(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(kMostLines), ", "));
  }

  std::string operation_text() const {
    if (shown_->record == nullptr) return kLeadersWord;
    const OperationRecord& record = *shown_->record;
    return fmt::format("#{} {} over {} of {}", record.sequence, record.operation, record.axis,
                       ranks_text(record.ranks));
  }

  std::string sentence() const {
    const std::vector<int>& culprits = report_.culprits;
    const bool one = culprits.size() == 1;
    std::string text = ranks_text(culprits);
    if (!report_.silent.empty()) {
      if (std::ssize(culprits) == evidence_.ranks) return "no rank answers";
      text += one ? " does not answer" : " do not answer";
    } else if (std::ranges::all_of(culprits, [&](int rank) { return waits(rank); })) {
      text += " wait for each other";
    } else {
      text += fmt::format(" get{} no further in step {}", one ? "s" : "", report_.step);
    }
    if (shown_ == nullptr) return text + "; nobody waits for " + (one ? "it" : "them");
    return text + fmt::format("; {} wait{} for {} in {}", ranks_text(shown_->waiting),
                              shown_->waiting.size() == 1 ? "s" : "", ranks_text(shown_->missing), operation_text());
  }

  std::string line_of(int rank) const {
    std::string line = fmt::format("rank {}:", rank);
    if (const telemetry::RankProgress* here = progress(rank)) {
      line += fmt::format(" step {}, {}", here->step, telemetry::phase_name(here->phase));
      if (here->micro_batch >= 0) line += fmt::format(" of micro-batch {}", here->micro_batch);
      line += ";";
    }
    if (!evidence_.records.contains(rank)) return line + " no answer";
    if (waits(rank)) {
      const Wait& wait = waits_[static_cast<std::size_t>(wait_of_[static_cast<std::size_t>(rank)])];
      if (wait.record == nullptr) return line + fmt::format(" waits for {}", kLeadersWord);
      return line +
             fmt::format(" waits for {} in {} {}", ranks_text(wait.missing), wait.record->axis, wait.record->operation);
    }
    const std::vector<OperationRecord>& own = records(rank);
    if (own.empty()) return line + " no operation yet";
    return line + fmt::format(" waits for nobody; last: {} {}", own.back().axis, own.back().operation);
  }

  void append_lines() {
    std::vector<int> order = report_.culprits;
    for (int rank = 0; rank < evidence_.ranks; ++rank) {
      if (!is_culprit(rank)) order.push_back(rank);
    }
    const std::size_t lines = std::min(order.size(), kMostLines);
    for (std::size_t i = 0; i < lines; ++i) report_.text += "\n" + line_of(order[i]);
  }

  const HangEvidence& evidence_;
  HangReport report_;
  std::map<GroupKey, Group> groups_;
  std::vector<Wait> waits_;
  std::map<std::tuple<GroupKey, std::string, std::int64_t, int>, int> wait_at_;
  std::vector<int> wait_of_;  // by rank, into waits_
  int leaders_word_ = kNone;
  const Wait* shown_ = nullptr;
};

}  // namespace

HangReport diagnose_hang(const HangEvidence& evidence) { return Diagnosis(evidence).report(); }

}  // namespace trireme::supervisor
