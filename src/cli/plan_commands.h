#pragma once

// The sums of `trireme plan`, one function a command.

#include "base/env.h"
#include "cli/arguments.h"

namespace trireme::cli {

void declare_plan_search(Command& plan, Env& env);  // `trireme plan MODEL` itself
void declare_plan_memory(Command& plan, Env& env);
void declare_plan_axes(Command& plan, Env& env);
void declare_plan_comms(Command& plan, Env& env);
void declare_plan_bubble(Command& plan, Env& env);
void declare_plan_layout(Command& plan, Env& env);
void declare_plan_checkpoint(Command& plan, Env& env);
void declare_plan_fleet(Command& plan, Env& env);
void declare_plan_validate(Command& plan, Env& env);

}  // namespace trireme::cli
