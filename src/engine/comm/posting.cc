#include "engine/comm/posting.h"

#include "base/check.h"
#include "engine/comm/reduce.h"

namespace trireme::comm {

std::unique_ptr<Request> post(Communicator& communicator, const Posting& posting) {
  const auto& [call, stream, peer] = posting;
  switch (call.operation) {
    case Operation::kAllReduce:
      return communicator.all_reduce(stream, call.data, call.count, call.dtype, call.reduction);
    case Operation::kReduceScatter:
      return communicator.reduce_scatter(stream, call.data, call.count, call.dtype);
    case Operation::kAllGather:
      return communicator.all_gather(stream, call.data, call.count, call.dtype);
    case Operation::kBroadcast:
      return communicator.broadcast(stream, call.data, call.count, call.dtype, call.root);
    case Operation::kSend:
      return communicator.send(stream, call.data, call.count, call.dtype, peer);
    case Operation::kReceive:
      return communicator.receive(stream, call.data, call.count, call.dtype, peer);
    case Operation::kBarrier:
      break;
  }
  detail::check_failed("a barrier has no request", "", call.text());
}

void check_posting(const Posting& posting, int index, int size) {
  const Call& call = posting.call;
  if (call.operation == Operation::kAllReduce || call.operation == Operation::kReduceScatter) {
    check_reduction(call.dtype, call.reduction);
  }
  if (call.operation == Operation::kBroadcast) {
    TRIREME_CHECK(call.root >= 0 && call.root < size, "broadcast from index {} of {}", call.root, size);
  }
  TRIREME_CHECK_GE(call.count, 0);
  if (!posting.is_message()) return;
  TRIREME_CHECK(posting.peer >= 0 && posting.peer < size && posting.peer != index,
                "message between index {} and {} of {}", index, posting.peer, size);
}

std::unique_ptr<Request> PostingCommunicator::all_reduce(Stream stream, std::byte* data, std::int64_t count,
                                                         DType dtype, Reduction reduction) {
  return run({.call = {Operation::kAllReduce, count, dtype, reduction, 0, data}, .stream = stream});
}

std::unique_ptr<Request> PostingCommunicator::reduce_scatter(Stream stream, std::byte* data, std::int64_t count,
                                                             DType dtype) {
  return run({.call = {Operation::kReduceScatter, count, dtype, Reduction::kSum, 0, data}, .stream = stream});
}

std::unique_ptr<Request> PostingCommunicator::all_gather(Stream stream, std::byte* data, std::int64_t count,
                                                         DType dtype) {
  return run({.call = {Operation::kAllGather, count, dtype, Reduction::kSum, 0, data}, .stream = stream});
}

std::unique_ptr<Request> PostingCommunicator::broadcast(Stream stream, std::byte* data, std::int64_t count, DType dtype,
                                                        int root) {
  return run({.call = {Operation::kBroadcast, count, dtype, Reduction::kSum, root, data}, .stream = stream});
}

std::unique_ptr<Request> PostingCommunicator::send(Stream stream, const std::byte* data, std::int64_t count,
                                                   DType dtype, int to) {
  return run({.call = {Operation::kSend, count, dtype, Reduction::kSum, 0, const_cast<std::byte*>(data)},
              .stream = stream,
              .peer = to});
}

std::unique_ptr<Request> PostingCommunicator::receive(Stream stream, std::byte* data, std::int64_t count, DType dtype,
                                                      int from) {
  return run({.call = {Operation::kReceive, count, dtype, Reduction::kSum, 0, data}, .stream = stream, .peer = from});
}

}  // namespace trireme::comm
