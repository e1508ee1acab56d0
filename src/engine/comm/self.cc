#include <utility>

#include "base/check.h"
#include "engine/comm/communicator.h"

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

class SelfCommunicator : public Communicator {
 public:
  SelfCommunicator(std::string axis, int world_rank) : name_{std::move(axis), {world_rank}} {}

  int index() const override { return 0; }
  int size() const override { return 1; }
  const GroupName& name() const override { return name_; }

  std::unique_ptr<Request> all_reduce(Stream, std::byte*, std::int64_t count, DType, Reduction) override {
    return complete(count);
  }
  std::unique_ptr<Request> reduce_scatter(Stream, std::byte*, std::int64_t count, DType) override {
    return complete(count);
  }
  std::unique_ptr<Request> all_gather(Stream, std::byte*, std::int64_t count, DType) override {
    return complete(count);
  }
  std::unique_ptr<Request> broadcast(Stream, std::byte*, std::int64_t count, DType, int root) override {
    TRIREME_CHECK_EQ(root, 0);
    return complete(count);
  }
  std::unique_ptr<Request> send(Stream, const std::byte*, std::int64_t, DType, int to) override {
    alone("send to", to);
  }
  std::unique_ptr<Request> receive(Stream, std::byte*, std::int64_t, DType, int from) override {
    alone("receive from", from);
  }
  void barrier() override {}
  void progress() override {}

 private:
  static std::unique_ptr<Request> complete(std::int64_t count) {
    TRIREME_CHECK_GE(count, 0);
    return std::make_unique<CompleteRequest>();
  }
  [[noreturn]] void alone(std::string_view operation, int peer) const {
    detail::check_failed("a group of one has no peers", "", fmt::format("{} {} over {}", operation, peer, name_.axis));
  }

  GroupName name_;
};

}  // namespace

std::unique_ptr<Communicator> make_self_communicator(std::string axis, int world_rank) {
  return std::make_unique<SelfCommunicator>(std::move(axis), world_rank);
}

}  // namespace trireme::comm
