#include "engine/comm/algorithm.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.h"
#include "engine/comm/algorithm_queue.h"
#include "engine/comm/reduce.h"

namespace trireme::comm {
namespace {

using Phases = std::vector<std::unique_ptr<Phase>>;

Phases ring_phases(const PhaseContext& context, const Ring& ring) {
  Phases phases;
  if (ring.size() == 1) return phases;
  phases.push_back(make_ring_scatter_phase(context, ring));
  if (context.call.operation == Operation::kAllReduce) phases.push_back(make_ring_gather_phase(context, ring));
  return phases;
}

// Members in pairs beyond a power of two: the odd ones give their data to the even ones and get the sum back. The
// others are numbered anew and exchange with the partner whose number differs in bit 0, 1, 2, ...
Phases doubling_phases(const PhaseContext& context) {
  const int index = context.inner.index();
  const int size = context.inner.size();
  const auto power = static_cast<int>(std::bit_floor(static_cast<unsigned>(size)));
  const int pairs = size - power;
  const bool folded = index < 2 * pairs;
  Phases phases;
  if (folded && index % 2 == 1) {
    phases.push_back(make_send_phase(context, {index - 1}));
    phases.push_back(make_receive_phase(context, index - 1));
    return phases;
  }
  if (folded) phases.push_back(make_sum_phase(context, {index + 1}));
  const int number = folded ? index / 2 : index - pairs;
  for (int distance = 1; distance < power; distance *= 2) {
    const int partner = number ^ distance;
    phases.push_back(make_exchange_phase(context, partner < pairs ? 2 * partner : partner + pairs));
  }
  if (folded) phases.push_back(make_send_phase(context, {index + 1}));
  return phases;
}

Phases hierarchical_phases(const PhaseContext& context, const std::vector<int>& host_of) {
  const int index = context.inner.index();
  const auto host = [&](int member) { return host_of[static_cast<std::size_t>(member)]; };
  std::vector<int> here;  // members on this host
  Ring leaders;           // the first of each host
  for (int member = 0; member < context.inner.size(); ++member) {
    if (host(member) == host(index)) here.push_back(member);
    const bool leads = std::find(host_of.begin(), host_of.begin() + member, host(member)) == host_of.begin() + member;
    if (!leads) continue;
    if (host(member) == host(index)) leaders.place = leaders.size();
    leaders.members.push_back(member);
  }
  Phases phases;
  if (index != here.front()) {
    phases.push_back(make_send_phase(context, {here.front()}));
    phases.push_back(make_receive_phase(context, here.front()));
    return phases;
  }
  const std::vector<int> others(here.begin() + 1, here.end());
  if (!others.empty()) phases.push_back(make_sum_phase(context, others));
  for (auto& phase : ring_phases(context, leaders)) phases.push_back(std::move(phase));
  if (!others.empty()) phases.push_back(make_send_phase(context, others));
  return phases;
}

class AlgorithmCommunicator : public Decorator {
 public:
  AlgorithmCommunicator(std::unique_ptr<Communicator> inner, Algorithm algorithm, std::vector<int> host_of,
                        std::span<std::byte> staging, const SegmentOptions& options)
      : Decorator(std::move(inner)),
        algorithm_(algorithm),
        options_(options),
        host_of_(std::make_shared<const std::vector<int>>(std::move(host_of))),
        queue_(std::make_shared<OperationQueue>(shared_inner(), staging)) {}

  void barrier() override {
    queue_->check_alive("barrier over " + name().axis);
    queue_->wait_for_all();
    inner().barrier();
  }
  void progress() override {
    queue_->check_alive("progress over " + name().axis);
    inner().progress();
    queue_->advance();
  }

 protected:
  std::unique_ptr<Request> run(const Posting& posting) override {
    TRIREME_CHECK_GE(posting.call.count, 0);
    const bool reduces =
        posting.call.operation == Operation::kAllReduce || posting.call.operation == Operation::kReduceScatter;
    const CollectiveKind kind =
        posting.call.operation == Operation::kAllReduce ? CollectiveKind::kAllReduce : CollectiveKind::kReduceScatter;
    if (!reduces || !is_own_of(algorithm_, kind)) {
      queue_->check_alive(posting.call.text() + " over " + name().axis);
      queue_->advance();
      return queue_->empty() ? post(inner(), posting) : queue_other(queue_, posting);
    }
    check_reduction(posting.call.dtype, posting.call.reduction);
    const Bytes staging =
        staging_bytes(algorithm_, kind, posting.call.count, dtype_size(posting.call.dtype), size(), options_);
    const auto make_phases = [algorithm = algorithm_, host_of = host_of_](const PhaseContext& context) {
      if (algorithm == Algorithm::kHierarchical) return hierarchical_phases(context, *host_of);
      if (algorithm == Algorithm::kRecursiveDoubling) return doubling_phases(context);
      Ring ring{.members = {}, .place = context.inner.index()};
      for (int member = 0; member < context.inner.size(); ++member) ring.members.push_back(member);
      return ring_phases(context, ring);
    };
    return queue_sum(queue_, posting, staging, options_, algorithm_, make_phases);
  }

 private:
  const Algorithm algorithm_;
  const SegmentOptions options_;
  const std::shared_ptr<const std::vector<int>> host_of_;
  const std::shared_ptr<OperationQueue> queue_;
};

}  // namespace

std::unique_ptr<Communicator> make_algorithm_communicator(std::unique_ptr<Communicator> inner, Algorithm algorithm,
                                                          std::vector<int> host_of_group_member,
                                                          std::span<std::byte> staging, const SegmentOptions& options) {
  TRIREME_CHECK(options.segment.count > 0 && options.segment.count % 8 == 0, "segments of {} bytes",
                options.segment.count);
  TRIREME_CHECK_GT(options.window, 0);
  if (algorithm == Algorithm::kHierarchical) TRIREME_CHECK_EQ(std::ssize(host_of_group_member), inner->size());
  if (algorithm == Algorithm::kOrdered || algorithm == Algorithm::kLibrary || inner->size() == 1) return inner;
  return std::make_unique<AlgorithmCommunicator>(std::move(inner), algorithm, std::move(host_of_group_member), staging,
                                                 options);
}

}  // namespace trireme::comm
