#include "engine/comm/call.h"

#include <fmt/format.h>

#include "base/error.h"

namespace trireme::comm {

std::string_view operation_name(Operation operation) {
  switch (operation) {
    case Operation::kAllReduce:
      return "all-reduce";
    case Operation::kReduceScatter:
      return "reduce-scatter";
    case Operation::kAllGather:
      return "all-gather";
    case Operation::kBroadcast:
      return "broadcast";
    case Operation::kBarrier:
      return "barrier";
    case Operation::kSend:
      return "send";
    case Operation::kReceive:
      return "receive";
  }
  return "operation";
}

namespace {

std::string hint_of(ExitCode code) {
  if (code != ExitCode::kHang) return "";
  return "the missing ranks are stuck, dead or slow: their own messages tell";
}

}  // namespace

std::string Call::text() const {
  std::string text(operation_name(operation));
  if (operation == Operation::kAllReduce) text += reduction == Reduction::kSum ? " (sum)" : " (maximum)";
  if (operation == Operation::kBroadcast) text += fmt::format(" from index {}", root);
  if (operation == Operation::kBarrier) return text;
  return text + fmt::format(" of {} {}", count, dtype_name(dtype));
}

bool Call::agrees_with(const Call& other) const {
  return operation == other.operation && count == other.count && dtype == other.dtype && reduction == other.reduction &&
         root == other.root;
}

void Death::throw_first_error() const { throw Error(code, "comm", operation, message, hint_of(code)); }

void Death::throw_dead(const std::string& later_operation) const {
  throw Error(code, "comm", later_operation, fmt::format("the communicator is dead since {}: {}", operation, message),
              hint_of(code));
}

}  // namespace trireme::comm
