#include <array>
#include <map>
#include <utility>

#include "base/check.h"
#include "engine/comm/message_operations.h"
#include "engine/comm/message_world.h"
#include "engine/comm/posting.h"

namespace trireme::comm {
namespace {

class OperationRequest : public Request {
 public:
  OperationRequest(std::shared_ptr<MessageWorld> world, std::shared_ptr<RunningOperation> operation)
      : world_(std::move(world)), operation_(std::move(operation)) {}
  ~OperationRequest() override {
    try {
      wait();
    } catch (const std::exception&) {
      // The world is dead: the next call says so.
    }
  }
  bool done() override {
    if (operation_->complete()) return true;
    world_->check_alive(operation_->text());
    world_->progress();
    return operation_->complete();
  }
  void wait() override { world_->wait(*operation_); }
  Clock::time_point completed_at() const override { return operation_->completed_at(); }

 private:
  std::shared_ptr<MessageWorld> world_;
  std::shared_ptr<RunningOperation> operation_;
};

// Numbers of operations, and the last one of each slot.
struct Sequence {
  std::int64_t next = 0;
  std::array<std::shared_ptr<RunningOperation>, kSlots> last;

  std::shared_ptr<RunningOperation>& slot() { return last[static_cast<std::size_t>(next % kSlots)]; }
};

class MessageCommunicator : public PostingCommunicator {
 public:
  MessageCommunicator(std::shared_ptr<MessageWorld> world, MessageGroup group, std::span<std::byte> staging)
      : world_(std::move(world)),
        group_(std::make_shared<const MessageGroup>(std::move(group))),
        turns_(std::make_shared<StagingTurns>(staging, world_->options().staged_operations)) {}

  int index() const override { return group_->index; }
  int size() const override { return group_->size(); }
  const GroupName& name() const override { return group_->name; }

  void barrier() override { collective({})->wait(); }
  void progress() override {
    world_->check_alive("progress over " + name().axis);
    world_->progress();
  }

 protected:
  std::unique_ptr<Request> run(const Posting& posting) override {
    check_posting(posting, index(), size());
    return posting.is_message() ? message(posting.peer, posting.call) : collective(posting.call);
  }

 private:
  std::unique_ptr<Request> collective(const Call& call) {
    world_->check_alive(call.text() + " over " + name().axis);
    return start<Collective>(collectives_, [&](std::shared_ptr<RunningOperation> before) {
      return std::make_shared<Collective>(*world_, group_, call, collectives_.next, std::move(before), turns_);
    });
  }

  std::unique_ptr<Request> message(int peer, const Call& call) {
    world_->check_alive(call.text() + " over " + name().axis);
    Sequence& sequence = (call.operation == Operation::kSend ? sends_ : receives_)[peer];
    return start<Message>(sequence, [&](std::shared_ptr<RunningOperation> before) {
      return std::make_shared<Message>(*world_, group_, call, peer, sequence.next, std::move(before));
    });
  }

  template <class T, class Make>
  std::unique_ptr<Request> start(Sequence& sequence, Make&& make) {
    std::shared_ptr<RunningOperation>& slot = sequence.slot();
    std::shared_ptr<T> operation = make(slot && !slot->complete() ? slot : nullptr);
    slot = operation;
    ++sequence.next;
    return start_operation(world_, std::move(operation));
  }

  std::shared_ptr<MessageWorld> world_;
  std::shared_ptr<const MessageGroup> group_;
  std::shared_ptr<StagingTurns> turns_;
  Sequence collectives_;
  std::map<int, Sequence> sends_;  // by peer
  std::map<int, Sequence> receives_;
};

}  // namespace

std::unique_ptr<Request> start_operation(const std::shared_ptr<MessageWorld>& world,
                                         std::shared_ptr<RunningOperation> operation) {
  world->start(operation);
  return std::make_unique<OperationRequest>(world, std::move(operation));
}

std::unique_ptr<Communicator> MessageWorld::make_communicator(const std::shared_ptr<MessageWorld>& world,
                                                              const GroupName& name, std::span<std::byte> staging) {
  world->check_alive("making a group over " + name.axis);
  return std::make_unique<MessageCommunicator>(world, world->group_of(name), staging);
}

}  // namespace trireme::comm
