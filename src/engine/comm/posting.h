#pragma once

// Operations as values: every call of a communicator that is one of these passes one place.

#include <memory>

#include "base/units.h"
#include "engine/comm/call.h"
#include "engine/comm/communicator.h"

namespace trireme::comm {

// An operation, but a barrier, as it is handed to a communicator.
struct Posting {
  Call call;
  Stream stream = {};
  int peer = -1;  // of a send or receive: index in the group

  Bytes bytes() const { return Bytes{dtype_size(call.dtype)} * call.count; }  // of the buffer
  bool is_message() const { return call.operation == Operation::kSend || call.operation == Operation::kReceive; }
};

// Calls it.
std::unique_ptr<Request> post(Communicator& communicator, const Posting& posting);
// CHECKs what every backend asks of the calls of member `index` of `size`: a reduction of such elements, a root and a
// peer that exist, no negative count.
void check_posting(const Posting& posting, int index, int size);

class PostingCommunicator : public Communicator {
 public:
  std::unique_ptr<Request> all_reduce(Stream stream, std::byte* data, std::int64_t count, DType dtype,
                                      Reduction reduction) final;
  std::unique_ptr<Request> reduce_scatter(Stream stream, std::byte* data, std::int64_t count, DType dtype) final;
  std::unique_ptr<Request> all_gather(Stream stream, std::byte* data, std::int64_t count, DType dtype) final;
  std::unique_ptr<Request> broadcast(Stream stream, std::byte* data, std::int64_t count, DType dtype, int root) final;
  std::unique_ptr<Request> send(Stream stream, const std::byte* data, std::int64_t count, DType dtype, int to) final;
  std::unique_ptr<Request> receive(Stream stream, std::byte* data, std::int64_t count, DType dtype, int from) final;

 protected:
  // Each operation but the barrier.
  virtual std::unique_ptr<Request> run(const Posting& posting) = 0;
};

}  // namespace trireme::comm
