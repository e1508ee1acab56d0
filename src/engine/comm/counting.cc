#include "engine/comm/counting.h"

namespace trireme::comm {
namespace {

class CountingCommunicator : public Communicator {
 public:
  CountingCommunicator(std::unique_ptr<Communicator> inner, TrafficCounters& counters, ReduceAlgorithm algorithm,
                       std::vector<int> host_of)
      : inner_(std::move(inner)), counters_(counters), algorithm_(algorithm), host_of_(std::move(host_of)) {}

  int index() const override { return inner_->index(); }
  int size() const override { return inner_->size(); }
  const GroupName& name() const override { return inner_->name(); }

  std::unique_ptr<Request> all_reduce(Stream stream, std::byte* data, std::int64_t count, DType dtype,
                                      Reduction reduction) override {
    add(CollectiveKind::kAllReduce, count, dtype);
    return inner_->all_reduce(stream, data, count, dtype, reduction);
  }
  std::unique_ptr<Request> reduce_scatter(Stream stream, std::byte* data, std::int64_t count, DType dtype) override {
    add(CollectiveKind::kReduceScatter, count, dtype);
    return inner_->reduce_scatter(stream, data, count, dtype);
  }
  std::unique_ptr<Request> all_gather(Stream stream, std::byte* data, std::int64_t count, DType dtype) override {
    add(CollectiveKind::kAllGather, count, dtype);
    return inner_->all_gather(stream, data, count, dtype);
  }
  std::unique_ptr<Request> broadcast(Stream stream, std::byte* data, std::int64_t count, DType dtype,
                                     int root) override {
    count_call("broadcast", index() == root ? count * (size() - 1) : 0, dtype);
    return inner_->broadcast(stream, data, count, dtype, root);
  }
  std::unique_ptr<Request> send(Stream stream, const std::byte* data, std::int64_t count, DType dtype,
                                int to) override {
    add(CollectiveKind::kSend, count, dtype);
    return inner_->send(stream, data, count, dtype, to);
  }
  std::unique_ptr<Request> receive(Stream stream, std::byte* data, std::int64_t count, DType dtype, int from) override {
    return inner_->receive(stream, data, count, dtype, from);
  }
  void barrier() override { inner_->barrier(); }
  void progress() override { inner_->progress(); }

 private:
  void add(CollectiveKind kind, std::int64_t count, DType dtype) {
    count_call(collective_name(kind), sent_elements(algorithm_, kind, count, index(), size(), host_of_), dtype);
  }
  void count_call(std::string_view collective, std::int64_t elements, DType dtype) {
    if (size() > 1) counters_.add(name().axis, collective, Bytes{dtype_size(dtype)} * elements);
  }

  std::unique_ptr<Communicator> inner_;
  TrafficCounters& counters_;
  const ReduceAlgorithm algorithm_;
  const std::vector<int> host_of_;
};

}  // namespace

void TrafficCounters::add(std::string_view axis, std::string_view collective, Bytes sent) {
  TrafficCount& count = counts_[{std::string(axis), std::string(collective)}];
  if (count.calls == 0) {
    count.axis = axis;
    count.collective = collective;
  }
  ++count.calls;
  count.sent += sent;
}

std::vector<TrafficCount> TrafficCounters::counts() const {
  std::vector<TrafficCount> result;
  result.reserve(counts_.size());
  for (const auto& [key, count] : counts_) result.push_back(count);
  return result;
}

std::unique_ptr<Communicator> make_counting_communicator(std::unique_ptr<Communicator> inner, TrafficCounters& counters,
                                                         ReduceAlgorithm algorithm,
                                                         std::vector<int> host_of_group_member) {
  return std::make_unique<CountingCommunicator>(std::move(inner), counters, algorithm, std::move(host_of_group_member));
}

}  // namespace trireme::comm
