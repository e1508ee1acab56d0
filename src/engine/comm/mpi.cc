#include "engine/comm/mpi.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <list>
#include <optional>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <mpi.h>

#include "base/check.h"
#include "base/error.h"
#include "engine/comm/mpi_library.h"

namespace trireme::comm {
namespace {

// Errors of a call that was wrong by itself; others mean that the peers cannot be reached.
ExitCode code_of(int error_class) {
  switch (error_class) {
    case MPI_ERR_BUFFER:
    case MPI_ERR_COUNT:
    case MPI_ERR_TYPE:
    case MPI_ERR_TAG:
    case MPI_ERR_COMM:
    case MPI_ERR_RANK:
    case MPI_ERR_REQUEST:
    case MPI_ERR_ARG:
    case MPI_ERR_TRUNCATE:
      return ExitCode::kInternal;
    default:
      return ExitCode::kRankLost;
  }
}

std::string peer_text(std::string_view preposition, int peer) {
  return peer == Transport::kAnyRank ? fmt::format("{} any rank", preposition)
                                     : fmt::format("{} rank {}", preposition, peer);
}

// `where` is a function, called only for its text when the call has failed.
template <class Where>
void check(int result, const Where& where) {
  if (result == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  int error_class = MPI_ERR_UNKNOWN;
  MPI_Error_class(result, &error_class);
  if (MPI_Error_string(result, text.data(), &length) != MPI_SUCCESS) length = 0;
  throw TransportError(code_of(error_class), fmt::format("{}: {}", where(),
                                                         length > 0 ? std::string_view(text.data(), length)
                                                                    : std::string_view("unknown error")));
}

auto named(std::string_view call) {
  return [call] { return std::string(call); };
}

MPI_Datatype type_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return MPI_FLOAT;
    case DType::kF64:
      return MPI_DOUBLE;
    case DType::kI32:
      return MPI_INT32_T;
    case DType::kI64:
      return MPI_INT64_T;
    default:
      TRIREME_CHECK_EQ(dtype_size(dtype), 2);
      return MPI_UINT16_T;  // only copied: resolve_run() refuses sums of these by the library
  }
}

class Mpi : public MpiLibrary {
 public:
  explicit Mpi(const std::function<void(int& to, std::int64_t& bytes)>& before_send) : before_send_(before_send) {
    for (MPI_Comm communicator : {MPI_COMM_WORLD, MPI_COMM_SELF}) {
      check(MPI_Comm_set_errhandler(communicator, MPI_ERRORS_RETURN), named("MPI_Comm_set_errhandler"));
    }
    check(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), named("MPI_Comm_rank"));
    check(MPI_Comm_size(MPI_COMM_WORLD, &size_), named("MPI_Comm_size"));
    int* limit = nullptr;
    int is_set = 0;
    check(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, static_cast<void*>(&limit), &is_set),
          named("MPI_Comm_get_attr"));
    // Open MPI makes groups by messages of the tag that it is given, so the last one is theirs.
    if (is_set != 0) tag_limit_ = *limit - 1;
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int tag_limit() const override { return tag_limit_; }

  std::string version() const override {
    std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
    int length = 0;
    check(MPI_Get_library_version(text.data(), &length), named("MPI_Get_library_version"));
    const std::string_view all(text.data(), static_cast<std::size_t>(length));
    return std::string(all.substr(0, all.find_first_of(",\n")));
  }

  Ticket send(int to, int tag, std::span<const std::byte> data) override {
    std::int64_t bytes = std::ssize(data);
    if (before_send_) before_send_(to, bytes);
    const Ticket ticket = new_ticket({.peer = to, .expected = -1});
    check(MPI_Isend(data.data(), static_cast<int>(bytes), MPI_BYTE, to, tag, MPI_COMM_WORLD, &at(ticket).request),
          [&] { return "MPI_Isend " + peer_text("to", to); });
    return ticket;
  }

  Ticket receive(int from, int tag, std::span<std::byte> data) override {
    const Ticket ticket = new_ticket({.peer = from, .expected = std::ssize(data)});
    check(MPI_Irecv(data.data(), static_cast<int>(data.size()), MPI_BYTE, from == kAnyRank ? MPI_ANY_SOURCE : from, tag,
                    MPI_COMM_WORLD, &at(ticket).request),
          [&] { return "MPI_Irecv " + peer_text("from", from); });
    return ticket;
  }

  bool test(Ticket ticket) override {
    Pending& pending = at(ticket);
    int is_complete = 0;
    MPI_Status status;
    check(MPI_Test(&pending.request, &is_complete, &status), [&] { return "MPI_Test of " + text_of(pending); });
    if (is_complete == 0) return false;
    if (pending.expected >= 0) {
      int bytes = 0;
      check(MPI_Get_count(&status, MPI_BYTE, &bytes), named("MPI_Get_count"));
      if (bytes != pending.expected) {
        throw TransportError(ExitCode::kInternal, fmt::format("MPI_Test of {}: {} bytes came, {} were expected",
                                                              text_of(pending), bytes, pending.expected));
      }
    }
    if (pending.shares) shares_.erase(*pending.shares);
    free_.push_back(ticket);
    return true;
  }

  void cancel(Ticket ticket) override {
    Pending& pending = at(ticket);
    check(MPI_Cancel(&pending.request), [&] { return "MPI_Cancel of " + text_of(pending); });
    int is_complete = 0;
    while (is_complete == 0) {  // a cancelled receive completes without its peer
      check(MPI_Test(&pending.request, &is_complete, MPI_STATUS_IGNORE),
            [&] { return "MPI_Test of " + text_of(pending); });
    }
    free_.push_back(ticket);
  }

  // Receives that no message has met are taken back. Others move only inside of MPI calls, and there are no more.
  void abandon() override {
    if (ended_) return;
    for (Pending& pending : pending_) {
      if (pending.expected >= 0 && pending.request != MPI_REQUEST_NULL) MPI_Cancel(&pending.request);
    }
  }

  Group make_group(std::span<const int> ranks) override {
    MPI_Group world = MPI_GROUP_NULL, members = MPI_GROUP_NULL;
    check(MPI_Comm_group(MPI_COMM_WORLD, &world), named("MPI_Comm_group"));
    check(MPI_Group_incl(world, static_cast<int>(ranks.size()), ranks.data(), &members), named("MPI_Group_incl"));
    MPI_Comm made = MPI_COMM_NULL;
    check(MPI_Comm_create_group(MPI_COMM_WORLD, members, tag_limit_ + 1, &made), named("MPI_Comm_create_group"));
    check(MPI_Comm_set_errhandler(made, MPI_ERRORS_RETURN), named("MPI_Comm_set_errhandler"));
    check(MPI_Group_free(&members), named("MPI_Group_free"));
    check(MPI_Group_free(&world), named("MPI_Group_free"));
    groups_.push_back(made);
    return static_cast<Group>(groups_.size() - 1);
  }

  Ticket all_reduce(Group group, std::byte* data, std::int64_t count, DType dtype, Reduction reduction) override {
    return collective("MPI_Iallreduce", count, [&](int elements, MPI_Request* request) {
      return MPI_Iallreduce(MPI_IN_PLACE, data, elements, type_of(dtype),
                            reduction == Reduction::kSum ? MPI_SUM : MPI_MAX, at_group(group), request);
    });
  }

  Ticket reduce(Group group, int root, std::byte* data, std::int64_t count, DType dtype) override {
    return collective("MPI_Ireduce", count, [&](int elements, MPI_Request* request) {
      int index = 0;
      check(MPI_Comm_rank(at_group(group), &index), named("MPI_Comm_rank"));
      const void* const from = index == root ? MPI_IN_PLACE : data;
      return MPI_Ireduce(from, index == root ? data : nullptr, elements, type_of(dtype), MPI_SUM, root, at_group(group),
                         request);
    });
  }

  Ticket all_gather(Group group, std::byte* data, std::int64_t count, DType dtype) override {
    int size = 0;
    check(MPI_Comm_size(at_group(group), &size), named("MPI_Comm_size"));
    // MPI may read them until the end.
    Shares& shares = shares_.emplace_back();
    for (int member = 0; member < size; ++member) {
      const Share share = share_of(count, member, size);
      shares.counts.push_back(static_cast<int>(share.end - share.begin));
      shares.begins.push_back(static_cast<int>(share.begin));
    }
    const Ticket ticket = collective("MPI_Iallgatherv", count, [&](int, MPI_Request* request) {
      return MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, data, shares.counts.data(), shares.begins.data(),
                             type_of(dtype), at_group(group), request);
    });
    at(ticket).shares = std::prev(shares_.end());
    return ticket;
  }

  void end() override {
    ended_ = true;
    for (MPI_Comm& group : groups_) check(MPI_Comm_free(&group), named("MPI_Comm_free"));
    check(MPI_Finalize(), named("MPI_Finalize"));
  }

 private:
  // Of the members of a group, in elements.
  struct Shares {
    std::vector<int> counts;
    std::vector<int> begins;
  };
  struct Pending {
    int peer = 0;
    std::int64_t expected = -1;  // bytes of a receive
    MPI_Request request = MPI_REQUEST_NULL;
    const char* collective = nullptr;  // its MPI name
    std::optional<std::list<Shares>::iterator> shares = std::nullopt;
  };

  // start(count, request) calls MPI.
  template <class Start>
  Ticket collective(const char* name, std::int64_t count, const Start& start) {
    TRIREME_CHECK(count >= 0 && count <= kMaxCount, "{} of {} elements", name, count);
    int nobody = -1;
    if (before_send_) before_send_(nobody, count);
    const Ticket ticket = new_ticket({.collective = name});
    check(start(static_cast<int>(count), &at(ticket).request), named(name));
    return ticket;
  }
  MPI_Comm at_group(Group group) const { return groups_[static_cast<std::size_t>(group)]; }

  static std::string text_of(const Pending& pending) {
    if (pending.collective != nullptr) return pending.collective;
    return pending.expected < 0 ? "a send " + peer_text("to", pending.peer)
                                : "a receive " + peer_text("from", pending.peer);
  }

  Pending& at(Ticket ticket) { return pending_[static_cast<std::size_t>(ticket)]; }

  Ticket new_ticket(const Pending& pending) {
    if (free_.empty()) {
      pending_.push_back(pending);
      return std::ssize(pending_) - 1;
    }
    const Ticket ticket = free_.back();
    free_.pop_back();
    at(ticket) = pending;
    return ticket;
  }

  std::function<void(int& to, std::int64_t& bytes)> before_send_;
  int rank_ = 0;
  int size_ = 1;
  int tag_limit_ = 32766;  // the standard promises one more
  bool ended_ = false;
  std::vector<Pending> pending_;  // by ticket
  std::vector<Ticket> free_;
  std::vector<MPI_Comm> groups_;
  std::list<Shares> shares_;  // of gathers under way
};

}  // namespace

bool has_mpi() { return true; }

std::shared_ptr<MpiLibrary> start_mpi(const std::function<void(int& to, std::int64_t& bytes)>& before_send) {
  int is_started = 0;
  check(MPI_Initialized(&is_started), named("MPI_Initialized"));
  TRIREME_CHECK(is_started == 0, "a process has one MPI world in its life");
  int level = MPI_THREAD_SINGLE;
  check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &level), named("MPI_Init_thread"));
  if (level < MPI_THREAD_FUNNELED) {
    throw Error(ExitCode::kUsage, "comm", "the start of MPI",
                "the MPI library cannot run in a process that has threads (MPI_THREAD_FUNNELED)");
  }
  return std::make_shared<Mpi>(before_send);
}

}  // namespace trireme::comm
