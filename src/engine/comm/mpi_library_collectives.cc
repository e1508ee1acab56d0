#include "engine/comm/mpi_library_collectives.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/check.h"
#include "engine/comm/decorator.h"
#include "engine/comm/message_operations.h"
#include "engine/comm/reduce.h"

namespace trireme::comm {
namespace {

class LibraryOperation : public RunningOperation {
 public:
  LibraryOperation(MessageWorld& world, std::shared_ptr<const MessageGroup> group, const Call& call,
                   std::shared_ptr<MpiLibrary> library, MpiLibrary::Group library_group)
      : RunningOperation(world, std::move(group), call, 0, nullptr),
        library_(std::move(library)),
        library_group_(library_group) {}

  std::string late_text(const std::string& waited) const override {
    return fmt::format("waited {} for the MPI library's own collective, which does not say for which of ranks {}",
                       waited, fmt::join(group().name.ranks, ", "));
  }

 protected:
  bool step() override {
    if (!std::exchange(started_, true)) start();
    const auto done = std::erase_if(under_way_, [&](MpiLibrary::Ticket ticket) { return library_->test(ticket); });
    return done > 0;
  }
  bool finished() const override { return started_ && under_way_.empty(); }

 private:
  void start() {
    const auto at = [&](std::int64_t offset) { return call().data + offset * element(); };
    if (call().operation == Operation::kAllGather) {
      under_way_.push_back(library_->all_gather(library_group_, call().data, call().count, call().dtype));
      return;
    }
    // A reduce-scatter in place, as the sum of each share at its owner: MPI's own moves the result to the beginning.
    const int roots = call().operation == Operation::kReduceScatter ? size() : 1;
    for (int root = 0; root < roots; ++root) {
      const Share share = share_of(call().count, root, roots);
      for (std::int64_t begin = share.begin; begin < share.end; begin += MpiLibrary::kMaxCount) {
        const std::int64_t count = std::min(share.end - begin, MpiLibrary::kMaxCount);
        under_way_.push_back(
            call().operation == Operation::kReduceScatter
                ? library_->reduce(library_group_, root, at(begin), count, call().dtype)
                : library_->all_reduce(library_group_, at(begin), count, call().dtype, call().reduction));
      }
    }
  }

  const std::shared_ptr<MpiLibrary> library_;
  const MpiLibrary::Group library_group_;
  bool started_ = false;
  std::vector<MpiLibrary::Ticket> under_way_;
};

class LibraryCommunicator : public Decorator {
 public:
  LibraryCommunicator(std::unique_ptr<Communicator> inner, std::shared_ptr<MessageWorld> world,
                      std::shared_ptr<MpiLibrary> library, MpiLibrary::Group group)
      : Decorator(std::move(inner)),
        world_(std::move(world)),
        library_(std::move(library)),
        library_group_(group),
        group_(std::make_shared<const MessageGroup>(MessageGroup{.name = name(), .index = index(), .ids = {}})) {}

  void barrier() override { inner().barrier(); }

 protected:
  std::unique_ptr<Request> run(const Posting& posting) override {
    const Call& call = posting.call;
    const bool reduces = call.operation == Operation::kAllReduce || call.operation == Operation::kReduceScatter;
    if (!reduces && call.operation != Operation::kAllGather) return post(inner(), posting);
    check_posting(posting, index(), size());
    world_->check_alive(call.text() + " over " + name().axis);
    return start_operation(world_, std::make_shared<LibraryOperation>(*world_, group_, call, library_, library_group_));
  }

 private:
  const std::shared_ptr<MessageWorld> world_;
  const std::shared_ptr<MpiLibrary> library_;
  const MpiLibrary::Group library_group_;
  const std::shared_ptr<const MessageGroup> group_;
};

}  // namespace

std::unique_ptr<Communicator> make_library_communicator(std::unique_ptr<Communicator> inner,
                                                        std::shared_ptr<MessageWorld> world,
                                                        std::shared_ptr<MpiLibrary> library, MpiLibrary::Group group) {
  return std::make_unique<LibraryCommunicator>(std::move(inner), std::move(world), std::move(library), group);
}

}  // namespace trireme::comm
