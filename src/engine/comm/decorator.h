#pragma once

// What communicators that wrap another one share: every operation passes one place, as a value.

#include <memory>
#include <utility>

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
};

// Calls it.
std::unique_ptr<Request> post(Communicator& communicator, const Posting& posting);

class Decorator : public Communicator {
 public:
  explicit Decorator(std::unique_ptr<Communicator> inner) : inner_(std::move(inner)) {}

  int index() const override { return inner_->index(); }
  int size() const override { return inner_->size(); }
  const GroupName& name() const override { return inner_->name(); }

  std::unique_ptr<Request> all_reduce(Stream stream, std::byte* data, std::int64_t count, DType dtype,
                                      Reduction reduction) final;
  std::unique_ptr<Request> reduce_scatter(Stream stream, std::byte* data, std::int64_t count, DType dtype) final;
  std::unique_ptr<Request> all_gather(Stream stream, std::byte* data, std::int64_t count, DType dtype) final;
  std::unique_ptr<Request> broadcast(Stream stream, std::byte* data, std::int64_t count, DType dtype, int root) final;
  std::unique_ptr<Request> send(Stream stream, const std::byte* data, std::int64_t count, DType dtype, int to) final;
  std::unique_ptr<Request> receive(Stream stream, std::byte* data, std::int64_t count, DType dtype, int from) final;
  void progress() override { inner_->progress(); }

 protected:
  // Each operation but the barrier.
  virtual std::unique_ptr<Request> run(const Posting& posting) = 0;

  Communicator& inner() { return *inner_; }
  // For requests that may outlive this communicator.
  const std::shared_ptr<Communicator>& shared_inner() const { return inner_; }

 private:
  std::shared_ptr<Communicator> inner_;
};

}  // namespace trireme::comm
