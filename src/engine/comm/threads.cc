#include "engine/comm/threads.h"

#include <utility>

#include "base/check.h"
#include "engine/comm/posting.h"
#include "engine/comm/thread_group.h"

namespace trireme::comm {
namespace {

class PostRequest : public Request {
 public:
  PostRequest(std::shared_ptr<World> world, std::shared_ptr<Group> group, Post post)
      : world_(std::move(world)), group_(std::move(group)), post_(std::move(post)) {}
  ~PostRequest() override {
    try {
      wait();
    } catch (const std::exception&) {
      // The world is dead: the next call says so.
    }
  }
  bool done() override { return group_->done(post_); }
  void wait() override { group_->wait(post_); }
  Clock::time_point completed_at() const override { return group_->completed_at(post_); }

 private:
  std::shared_ptr<World> world_;
  std::shared_ptr<Group> group_;
  const Post post_;
};

class ThreadCommunicator : public PostingCommunicator {
 public:
  ThreadCommunicator(std::shared_ptr<World> world, std::shared_ptr<Group> group, int index)
      : world_(std::move(world)), group_(std::move(group)), index_(index) {}

  int index() const override { return index_; }
  int size() const override { return group_->size(); }
  const GroupName& name() const override { return group_->name(); }

  void barrier() override { request(group_->post_collective(index_, {}))->wait(); }
  void progress() override { group_->progress(); }

 protected:
  std::unique_ptr<Request> run(const Posting& posting) override {
    check_posting(posting, index(), size());
    return request(posting.is_message() ? group_->post_message(index_, posting.peer, posting.call)
                                        : group_->post_collective(index_, posting.call));
  }

 private:
  std::unique_ptr<Request> request(Post post) { return std::make_unique<PostRequest>(world_, group_, std::move(post)); }

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

void ThreadWorld::set_deadline(Seconds deadline) {
  TRIREME_CHECK(deadline.count > 0, "a deadline of {} s", deadline.count);
  world_->set_deadline(deadline);
}

void ThreadWorld::report_lost(int world_rank, const std::string& reason) { world_->report_lost(world_rank, reason); }

}  // namespace trireme::comm
