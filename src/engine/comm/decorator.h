#pragma once

// What communicators that wrap another one share.

#include <memory>
#include <utility>

#include "engine/comm/posting.h"

namespace trireme::comm {

class Decorator : public PostingCommunicator {
 public:
  explicit Decorator(std::unique_ptr<Communicator> inner) : inner_(std::move(inner)) {}

  int index() const override { return inner_->index(); }
  int size() const override { return inner_->size(); }
  const GroupName& name() const override { return inner_->name(); }
  void progress() override { inner_->progress(); }

 protected:
  Communicator& inner() { return *inner_; }
  // For requests that may outlive this communicator.
  const std::shared_ptr<Communicator>& shared_inner() const { return inner_; }

 private:
  std::shared_ptr<Communicator> inner_;
};

}  // namespace trireme::comm
