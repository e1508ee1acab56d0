#include "plan/program.h"

#include <fmt/format.h>

#include "base/check.h"
#include "plan/program_builder.h"

namespace trireme::plan {

std::string_view op_name(Op op) {
  constexpr std::string_view kNames[] = {"allocate",
                                         "free",
                                         "allocate boundary",
                                         "free boundary",
                                         "send activation",
                                         "receive activation",
                                         "send gradient",
                                         "receive gradient",
                                         "gather",
                                         "release",
                                         "forward",
                                         "recompute",
                                         "backward input",
                                         "backward weight",
                                         "evaluate loss",
                                         "open gradient",
                                         "reduce",
                                         "close gradient",
                                         "reduce tensor partial",
                                         "sum tied",
                                         "gradient norm",
                                         "update",
                                         "gather updated",
                                         "refresh tied"};
  return kNames[static_cast<std::size_t>(op)];
}

std::string describe(const Instruction& instruction) {
  std::string text(op_name(instruction.op));
  if (instruction.unit >= 0) text += fmt::format(" of unit {}", instruction.unit);
  if (instruction.tied_head) text += " (tied head)";
  if (instruction.micro_batch >= 0) text += fmt::format(", micro-batch {}", instruction.micro_batch);
  if (instruction.op == Op::kAllocate || instruction.op == Op::kFree) {
    text += fmt::format(", group {}", static_cast<int>(instruction.group));
  }
  if (instruction.bucket >= 0) text += fmt::format(", bucket {}", instruction.bucket);
  if (instruction.peer >= 0) text += fmt::format(", peer {}", instruction.peer);
  return text;
}

int shard_unit_index(const RankProgram& program, const Instruction& instruction) {
  for (std::size_t index = 0; index < program.shard_units.size(); ++index) {
    const ShardUnit& unit = program.shard_units[index];
    if (unit.unit == instruction.unit && unit.tied_head == instruction.tied_head) return static_cast<int>(index);
  }
  TRIREME_CHECK(false, "{}: no such shard unit", describe(instruction));
}

RankProgram make_program(const model::ParameterTable& table, const Layout& layout, const Batch& batch, int rank) {
  const Status status = check_layout(table.config, layout, batch);
  TRIREME_CHECK(status.ok(), "{}", status.failure().sentence());
  ProgramBuilder builder(table, layout, batch, rank);
  const auto m = static_cast<int>(micro_batches(layout, batch));
  const Schedule schedule = make_schedule(layout.schedule, layout.pp, layout.interleave, m);
  for (const ChunkAction& action : schedule[static_cast<std::size_t>(coordinates_of(layout, rank).pp)]) {
    builder.add(action);
  }
  builder.end_of_step();
  return builder.take();
}

RankProgram make_evaluation_program(const model::ParameterTable& table, const Layout& layout, const Batch& batch,
                                    int rank) {
  ProgramBuilder builder(table, layout, batch, rank);
  const int stage = coordinates_of(layout, rank).pp;
  const int last = layout.chunks() - 1;
  for (int at = stage; at <= last; at += layout.pp) builder.evaluate(at / layout.pp);
  return builder.take();
}

}  // namespace trireme::plan
