#include "engine/comm/decorator.h"

#include "base/check.h"

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

std::unique_ptr<Request> Decorator::all_reduce(Stream stream, std::byte* data, std::int64_t count, DType dtype,
                                               Reduction reduction) {
  return run({.call = {Operation::kAllReduce, count, dtype, reduction, 0, data}, .stream = stream});
}

std::unique_ptr<Request> Decorator::reduce_scatter(Stream stream, std::byte* data, std::int64_t count, DType dtype) {
  return run({.call = {Operation::kReduceScatter, count, dtype, Reduction::kSum, 0, data}, .stream = stream});
}

std::unique_ptr<Request> Decorator::all_gather(Stream stream, std::byte* data, std::int64_t count, DType dtype) {
  return run({.call = {Operation::kAllGather, count, dtype, Reduction::kSum, 0, data}, .stream = stream});
}

std::unique_ptr<Request> Decorator::broadcast(Stream stream, std::byte* data, std::int64_t count, DType dtype,
                                              int root) {
  return run({.call = {Operation::kBroadcast, count, dtype, Reduction::kSum, root, data}, .stream = stream});
}

std::unique_ptr<Request> Decorator::send(Stream stream, const std::byte* data, std::int64_t count, DType dtype,
                                         int to) {
  return run({.call = {Operation::kSend, count, dtype, Reduction::kSum, 0, const_cast<std::byte*>(data)},
              .stream = stream,
              .peer = to});
}

std::unique_ptr<Request> Decorator::receive(Stream stream, std::byte* data, std::int64_t count, DType dtype, int from) {
  return run({.call = {Operation::kReceive, count, dtype, Reduction::kSum, 0, data}, .stream = stream, .peer = from});
}

}  // namespace trireme::comm
