#include "cli/commands.h"
#include "cli/plan_commands.h"

namespace trireme::cli {

void declare_plan(Command& root, Env& env) {
  Command& plan = root.command("plan", "The sums before a run; with a model and a cluster, the best layouts");
  declare_plan_search(plan, env);
  declare_plan_memory(plan, env);
  declare_plan_axes(plan, env);
  declare_plan_comms(plan, env);
  declare_plan_bubble(plan, env);
  declare_plan_layout(plan, env);
  declare_plan_checkpoint(plan, env);
  declare_plan_fleet(plan, env);
  declare_plan_validate(plan, env);
}

}  // namespace trireme::cli
