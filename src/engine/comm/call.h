#pragma once

// What a rank asks of its group, as values that peers compare.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/dtype.h"
#include "base/exit_code.h"
#include "engine/comm/communicator.h"

namespace trireme::comm {

enum class Operation : std::int32_t { kAllReduce, kReduceScatter, kAllGather, kBroadcast, kBarrier, kSend, kReceive };

std::string_view operation_name(Operation operation);  // "all-reduce"

// All members but the data must be equal on all ranks of a collective.
struct Call {
  Operation operation = Operation::kBarrier;
  std::int64_t count = 0;
  DType dtype = DType::kF32;
  Reduction reduction = Reduction::kSum;
  int root = 0;
  std::byte* data = nullptr;  // of a send: only read

  // "all-reduce (sum) of 5 F32"
  std::string text() const;
  bool agrees_with(const Call& other) const;
};

// Why a world ended.
struct Death {
  ExitCode code = ExitCode::kInternal;
  std::string operation;
  std::string message;

  // To those that it happened to.
  [[noreturn]] void throw_first_error() const;
  // To a call that comes later.
  [[noreturn]] void throw_dead(const std::string& later_operation) const;
};

}  // namespace trireme::comm
