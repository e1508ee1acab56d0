#include "engine/parallel/instruction_tracer.h"

#include <chrono>

namespace trireme::parallel {

using plan::Op;
using telemetry::SpanCategory;

SpanCategory category_of(Op op) {
  switch (op) {
    case Op::kSendActivation:
    case Op::kReceiveActivation:
    case Op::kSendGradient:
    case Op::kReceiveGradient:
    case Op::kGather:
    case Op::kReduce:
    case Op::kReduceTensorPartial:
    case Op::kSumTied:
    case Op::kGatherUpdated:
    case Op::kRefreshTied:
      return SpanCategory::kCommunication;
    default:
      return SpanCategory::kCompute;
  }
}

InstructionTracer::InstructionTracer(telemetry::Timeline& timeline, const model::Config& config)
    : timeline_(timeline),
      config_(config),
      unit_kinds_{timeline.word("embedding"), timeline.word("decoder"), timeline.word("head")} {
  for (std::size_t op = 0; op < kOps; ++op) names_[op] = timeline.word(plan::op_name(static_cast<Op>(op)));
}

void InstructionTracer::add(const plan::Instruction& instruction, comm::Clock::time_point begin,
                            comm::Clock::time_point end) {
  telemetry::Timeline::Word detail = 0;
  if (instruction.unit >= 0) {
    detail = unit_kinds_[static_cast<std::size_t>(model::unit_kind(config_, instruction.unit))];
  }
  timeline_.add({.name = names_[static_cast<std::size_t>(instruction.op)],
                 .detail = detail,
                 .category = category_of(instruction.op),
                 .place = timeline_.place(),
                 .begin = comm::on_the_clock(begin),
                 .end = comm::on_the_clock(end)});
}

}  // namespace trireme::parallel
