#pragma once

// The passes of a unit as a rank runs them: the bound steps (plan/tensor_flow.h) and where each value lies while a pass
// runs. Values that outlive a pass have buffers of their own (model/activations.h), what a pass gives to the next unit
// has that one's; all others lie in the workspace, or in the place of what they become.

#include <array>
#include <optional>
#include <vector>

#include "model/activations.h"
#include "plan/memory.h"
#include "plan/tensor_flow.h"

namespace trireme::plan {

enum class Home {
  kSaved,
  kOutput,         // of the unit; the next one's input
  kInputGradient,  // the unit before's output gradient
  kWorkspace,
  kLoss,  // the static buffers of the loss (StaticKind::kLogits, kRowTerms, kLosses)
};
enum class LossValue { kLogits, kRowMaxima, kRowSums, kLosses };

struct PlacedValue {
  std::string name;
  Home home = Home::kWorkspace;
  int saved = -1;         // kSaved: index into UnitProgram::saved
  Bytes offset = {};      // kWorkspace
  bool in_parts = false;  // kWorkspace: at this rank's rows of what lies there
  LossValue loss = LossValue::kLogits;
  std::int64_t rows = 0;
  std::int64_t columns = 0;  // on this rank; of logits: the model's
  bool statistics = false;   // in the state's type
  std::vector<model::SplitBlock> blocks = {};
};

struct PlacedStep {
  model::FlowStep step;
  std::vector<PlacedValue> reads = {};
  std::vector<PlacedValue> writes = {};
  PlacedValue scratch = {};  // in the workspace while the step runs; no rows: none
};

// A part of the workspace, in use from step `first` to step `last`: by values that share it, one after the other, or by
// a step's scratch.
struct WorkspacePlace {
  int first = 0;
  int last = 0;
  std::vector<model::FlowValue> values = {};
  std::optional<model::FlowOp> scratch_of = {};  // of the first value, which is not kept here then
};

struct PassProgram {
  std::vector<PlacedStep> steps;
  std::vector<WorkspacePlace> places;
  Bytes workspace;  // at most in use
};

struct UnitProgram {
  model::UnitFlow flow;
  std::vector<model::SavedActivation> saved;
  int input = -1;  // the unit's input, and its output's gradient, in `saved`; -1: none
  int output_gradient = -1;
  std::array<PassProgram, model::kFlowPassCount> passes;
  const PassProgram& operator[](model::FlowPass pass) const { return passes[static_cast<std::size_t>(pass)]; }
};
Bytes workspace_of(const UnitProgram& unit);  // the most of all passes
// The same of another batch, or of another tensor degree above one: what shares a place does not depend on them.
Bytes workspace_of(const UnitProgram& unit, const model::Config& config, const Layout& layout, const Batch& batch,
                   const RunInputs& inputs);
UnitProgram make_unit_program(const model::Config& config, const model::UnitFlow& flow, const Layout& layout,
                              const Batch& batch, const RunInputs& inputs);
// By model::flow_class.
std::vector<UnitProgram> make_unit_programs(const model::Config& config, const Layout& layout, const Batch& batch,
                                            const RunInputs& inputs);

}  // namespace trireme::plan
