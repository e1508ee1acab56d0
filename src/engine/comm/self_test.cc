#include <array>

#include <gtest/gtest.h>

#include "base/error.h"
#include "engine/comm/communicator.h"

namespace trireme::comm {
namespace {

TEST(SelfCommunicator, EverythingIsCompleteAndMovesNothing) {
  const auto self = make_self_communicator("tensor", 5);
  EXPECT_EQ(self->index(), 0);
  EXPECT_EQ(self->size(), 1);
  EXPECT_EQ(self->name().axis, "tensor");
  EXPECT_EQ(self->name().ranks, std::vector<int>{5});
  std::array<float, 3> values{1, 2, 3};
  const std::array<float, 3> before = values;
  auto* data = reinterpret_cast<std::byte*>(values.data());
  std::vector<std::unique_ptr<Request>> requests;
  requests.push_back(self->all_reduce({}, data, 3, DType::kF32, Reduction::kSum));
  requests.push_back(self->reduce_scatter({}, data, 3, DType::kF32));
  requests.push_back(self->all_gather({}, data, 3, DType::kF32));
  requests.push_back(self->broadcast({}, data, 3, DType::kF32, 0));
  for (const auto& request : requests) {
    EXPECT_TRUE(request->done());
    request->wait();
  }
  self->barrier();
  self->progress();
  EXPECT_EQ(values, before);
}

TEST(SelfCommunicator, HasNobodyToSendTo) {
  const auto self = make_self_communicator("pipeline", 0);
  std::byte data{};
  EXPECT_THROW(self->send({}, &data, 1, DType::kF32, 1), InternalError);
  EXPECT_THROW(self->receive({}, &data, 1, DType::kF32, 0), InternalError);
  EXPECT_THROW(self->broadcast({}, &data, 1, DType::kF32, 1), InternalError);
  EXPECT_THROW(self->all_gather({}, &data, -1, DType::kF32), InternalError);
}

}  // namespace
}  // namespace trireme::comm
