#pragma once

// Faults that a drill, or a test, plants into a run: where, when, what. Text of one:
//   KIND:rank=2,step=17[,phase=backward][,micro_batch=1][,times=1|always][,factor=2]
// several joined with ';'. Kinds: kill (SIGKILL to the own process), segv, stop (SIGSTOP), exit (_exit(3), no word),
// hang (the rank gets no further, its process lives), slow (each instruction takes `factor` times as long, from `step`
// on), nan (in the loss), disk-full (writes of the save of that step find no room), flip (a bit of the newest
// checkpoint's first shard, then kill). phase: start, load, forward, backward, reduce, optimizer, validation, save;
// without it the first instruction of the step. start and load come before any step, and take none. A fault happens in
// the first `times` starts of the run under its supervisor that come by it (marks in the run directory count them), or
// always; without a supervisor in every start.
// In phase save: once the rank has written its part, while there is no manifest yet; a hang before the part is written.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/env.h"
#include "base/error.h"
#include "telemetry/control_message.h"

namespace trireme::train {

enum class FaultKind { kKill, kSegv, kStop, kExit, kHang, kSlow, kNan, kDiskFull, kFlip };

struct PlannedFault {
  FaultKind kind = FaultKind::kKill;
  int rank = 0;
  std::int64_t step = 0;  // 0: none, phase start or load
  std::optional<telemetry::Phase> phase = std::nullopt;
  int micro_batch = -1;    // -1: any
  std::int64_t times = 1;  // 0: always
  double factor = 2;       // slow
  friend bool operator==(const PlannedFault&, const PlannedFault&) = default;
};

// Refused (option "inject") by name: unknown kinds, keys, phases; what lacks its rank or step; what could not happen.
Result<std::vector<PlannedFault>> parse_planned_faults(std::string_view text);
std::string to_text(const std::vector<PlannedFault>& faults);
std::string to_text(const PlannedFault& fault);

// Removes the marks that count how often faults happened: before the first start under a supervisor, and at the end of
// a run in order.
void remove_fault_marks(Env& env, const std::string& out);

}  // namespace trireme::train
