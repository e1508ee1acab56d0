#pragma once

// One function a command: declares its options and its action. All take what they need from outside through Env.

#include "base/env.h"
#include "cli/arguments.h"

namespace trireme::cli {

void declare_plan(Command& root, Env& env);
void declare_train(Command& root, Env& env);
void declare_worker(Command& root, Env& env);
void declare_drill(Command& root, Env& env);
void declare_bench(Command& root, Env& env);
void declare_verify(Command& root, Env& env);
void declare_model(Command& root, Env& env);
void declare_data(Command& root, Env& env);
void declare_sample(Command& root, Env& env);
void declare_checkpoint(Command& root, Env& env);
void declare_report(Command& root, Env& env);

}  // namespace trireme::cli
