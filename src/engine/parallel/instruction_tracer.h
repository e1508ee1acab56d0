#pragma once

// Writes the instructions that a rank runs into its timeline.

#include <array>

#include "engine/comm/communicator.h"
#include "model/config.h"
#include "model/parameters.h"
#include "plan/program.h"
#include "telemetry/timeline.h"

namespace trireme::parallel {

// What the rank's thread does in an instruction. Waits within it are spans of their own.
telemetry::SpanCategory category_of(plan::Op op);

class InstructionTracer {
 public:
  InstructionTracer(telemetry::Timeline& timeline, const model::Config& config);

  bool on() const { return timeline_.on(); }

  // body() as a span; none where it throws. Spans of what it calls get the instruction's place. A device that works
  // behind the host's back shows here as the host sees it.
  template <class Body>
  void run(const plan::Instruction& instruction, Body&& body) {
    const telemetry::SpanPlace outer = timeline_.place();
    const comm::Clock::time_point begin = comm::Clock::now();
    timeline_.set_place({outer.step, instruction.unit, instruction.micro_batch, instruction.chunk});
    body();
    add(instruction, begin, comm::Clock::now());
    timeline_.set_place(outer);
  }

 private:
  void add(const plan::Instruction& instruction, comm::Clock::time_point begin, comm::Clock::time_point end);

  static constexpr std::size_t kOps = static_cast<std::size_t>(plan::Op::kRefreshTied) + 1;
  telemetry::Timeline& timeline_;
  const model::Config& config_;
  std::array<telemetry::Timeline::Word, kOps> names_{};
  std::array<telemetry::Timeline::Word, 3> unit_kinds_{};
};

}  // namespace trireme::parallel
