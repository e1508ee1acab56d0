#include "engine/comm/threads.h"

#include <cstring>
#include <utility>

#include "base/check.h"
#include "engine/comm/meeting.h"
#include "engine/comm/reduce.h"

namespace trireme::comm {
namespace {

class CompleteRequest : public Request {
 public:
  bool done() override { return true; }
  void wait() override {}
  Clock::time_point completed_at() const override { return completed_at_; }

 private:
  const Clock::time_point completed_at_ = Clock::now();
};

class TransferRequest : public Request {
 public:
  TransferRequest(std::shared_ptr<World> world, std::shared_ptr<Group> group, int index,
                  std::shared_ptr<Transfer> transfer)
      : world_(std::move(world)), group_(std::move(group)), index_(index), transfer_(std::move(transfer)) {}
  ~TransferRequest() override {
    try {
      wait();
    } catch (const std::exception&) {
      // The world is dead: the next call says so.
    }
  }
  bool done() override { return complete_ || group_->done(*transfer_); }
  void wait() override {
    if (complete_) return;
    complete_ = true;  // a wait that throws has taken the message back
    group_->wait(index_, transfer_);
  }
  Clock::time_point completed_at() const override { return group_->completed_at(*transfer_); }

 private:
  std::shared_ptr<World> world_;
  std::shared_ptr<Group> group_;
  int index_;
  std::shared_ptr<Transfer> transfer_;
  bool complete_ = false;
};

class ThreadCommunicator : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<World> world, std::shared_ptr<Group> group, int index)
      : world_(std::move(world)), group_(std::move(group)), index_(index) {}

  int index() const override { return index_; }
  int size() const override { return group_->size(); }
  const GroupName& name() const override { return group_->name(); }

  // Each rank adds its own share, then copies those of others.
  std::unique_ptr<Request> all_reduce(Stream, std::byte* data, std::int64_t count, DType dtype,
                                      Reduction reduction) override {
    check_reduction(dtype, reduction);
    meet({Operation::kAllReduce, count, dtype, reduction, 0, data});
    reduce_own_share();
    group_->pass();
    copy_other_shares();
    group_->leave();
    return std::make_unique<CompleteRequest>();
  }

  std::unique_ptr<Request> reduce_scatter(Stream, std::byte* data, std::int64_t count, DType dtype) override {
    check_reduction(dtype, Reduction::kSum);
    meet({Operation::kReduceScatter, count, dtype, Reduction::kSum, 0, data});
    reduce_own_share();
    group_->leave();
    return std::make_unique<CompleteRequest>();
  }

  std::unique_ptr<Request> all_gather(Stream, std::byte* data, std::int64_t count, DType dtype) override {
    meet({Operation::kAllGather, count, dtype, Reduction::kSum, 0, data});
    copy_other_shares();
    group_->leave();
    return std::make_unique<CompleteRequest>();
  }

  std::unique_ptr<Request> broadcast(Stream, std::byte* data, std::int64_t count, DType dtype, int root) override {
    TRIREME_CHECK(root >= 0 && root < size(), "broadcast from index {} of {}", root, size());
    meet({Operation::kBroadcast, count, dtype, Reduction::kSum, root, data});
    copy_from(root, {0, count});
    group_->leave();
    return std::make_unique<CompleteRequest>();
  }

  std::unique_ptr<Request> send(Stream, const std::byte* data, std::int64_t count, DType dtype, int to) override {
    return transfer(to, {Operation::kSend, count, dtype, Reduction::kSum, 0, const_cast<std::byte*>(data)});
  }
  std::unique_ptr<Request> receive(Stream, std::byte* data, std::int64_t count, DType dtype, int from) override {
    return transfer(from, {Operation::kReceive, count, dtype, Reduction::kSum, 0, data});
  }

  void barrier() override {
    meet({});
    group_->leave();
  }
  void progress() override {}

 private:
  void meet(const Call& call) {
    TRIREME_CHECK_GE(call.count, 0);
    group_->meet(index_, call);
  }

  const Call& call_of(int peer) const { return group_->calls()[static_cast<std::size_t>(peer)]; }

  // Peers read other shares of this rank's data meanwhile, never this one.
  void reduce_own_share() {
    const Call& own = call_of(index_);
    std::vector<const std::byte*> sources;
    sources.reserve(group_->calls().size());
    for (const Call& call : group_->calls()) sources.push_back(call.data);
    reduce_in_order(own.dtype, own.reduction, sources, own.data, share_of(own.count, index_, size()));
  }

  void copy_other_shares() {
    for (int peer = 0; peer < size(); ++peer) copy_from(peer, share_of(call_of(index_).count, peer, size()));
  }

  void copy_from(int peer, Share share) {
    const Call& own = call_of(index_);
    if (peer == index_ || share.begin == share.end) return;
    const std::int64_t size_of_element = dtype_size(own.dtype);
    std::memcpy(own.data + share.begin * size_of_element, call_of(peer).data + share.begin * size_of_element,
                static_cast<std::size_t>((share.end - share.begin) * size_of_element));
  }

  std::unique_ptr<Request> transfer(int peer, const Call& call) {
    TRIREME_CHECK_GE(call.count, 0);
    TRIREME_CHECK(peer >= 0 && peer < size() && peer != index_, "message between index {} and {} of {}", index_, peer,
                  size());
    return std::make_unique<TransferRequest>(world_, group_, index_, group_->post(index_, peer, call));
  }

  std::shared_ptr<World> world_;
  std::shared_ptr<Group> group_;
  const int index_;
};

}  // namespace

ThreadWorld::ThreadWorld(int ranks, Seconds deadline) : world_(std::make_shared<World>(ranks, deadline)) {
  TRIREME_CHECK_GT(ranks, 0);
  TRIREME_CHECK(deadline.count > 0, "a deadline of {} s", deadline.count);
}

std::unique_ptr<Communicator> ThreadWorld::make_communicator(const GroupName& name, int world_rank) {
  auto [group, index] = world_->join(name, world_rank);
  return std::make_unique<ThreadCommunicator>(world_, std::move(group), index);
}

void ThreadWorld::report_lost(int world_rank, const std::string& reason) { world_->report_lost(world_rank, reason); }

}  // namespace trireme::comm
