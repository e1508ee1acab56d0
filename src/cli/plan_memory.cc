#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/missing_unit.h"
#include "cli/plan_commands.h"
#include "cli/plan_question.h"
#include "cli/plan_tables.h"
#include "cli/plan_values.h"
#include "planner/explain.h"
#include "planner/state_memory.h"

namespace trireme::cli {
namespace {

using planner::Choice;
using planner::MemoryEstimate;

struct Options {
  ModelFlags model;
  RunFlags run;
  LayoutFlags layout;
  std::string params, ranks, device_memory;
  bool checkpoints = false;
  bool json = false;
};

double device_memory(const Options& options) {
  return options.device_memory.empty() ? 0.0 : device_memory_bytes("--device-memory", options.device_memory);
}

// --- From a number of parameters -------------------------------------------------------------------------------------

double parameter_count(const Options& options) {
  constexpr double kLeastBare = 1e4;
  const Result<double> count = parse_count_with_unit(options.params, kLeastBare);
  if (!count) {
    Failure failure = count.failure();
    failure.option = "--params";
    throw Error(failure);
  }
  if (*count < 1 || *count > 1e15) {
    refuse("--params", options.params, "must be between 1 and 1e15", *count < 1 ? "1" : "1e15");
  }
  return *count;
}

void print_state(double parameters, std::int64_t ranks, const plan::RunInputs& inputs, double memory) {
  const auto count = static_cast<std::int64_t>(parameters);
  fmt::print("training state of {} parameter{} on {} rank{}, by ZeRO stage (activations and buffers come on top)\n\n",
             format_exact(count), count == 1 ? "" : "s", format_exact(ranks), ranks == 1 ? "" : "s");
  fmt::print("{:<7}{:>12}{:>12}{:>24}{:>14}\n", "stage", "weights", "gradients", "master and moments", "a rank");
  for (int zero = 0; zero <= 3; ++zero) {
    const planner::StateBytes state = planner::state_bytes(parameters, ranks, zero, inputs);
    fmt::print("ZeRO {:<2}{:>12}{:>12}{:>24}{:>14}{}\n", zero, bytes_text(state.weights), bytes_text(state.gradients),
               bytes_text(state.optimizer), bytes_text(state.sum()),
               memory > 0 ? "   " + fits_text(state.sum(), memory) : "");
  }
  if (memory <= 0) return;
  fmt::print("\nfewest ranks whose state fits in {}:", bytes_text(memory));
  for (int zero = 0; zero <= 3; ++zero) {
    const auto least = planner::fewest_ranks(parameters, memory, zero, inputs);
    fmt::print("{} ZeRO {}: {}", zero > 0 ? ";" : "", zero, least ? format_exact(*least) : "no number");
  }
  fmt::print("\n");
}

Json state_json(double parameters, std::int64_t ranks, const plan::RunInputs& inputs, double memory) {
  Json stages = Json::array();
  for (int zero = 0; zero <= 3; ++zero) {
    const planner::StateBytes state = planner::state_bytes(parameters, ranks, zero, inputs);
    Json stage = Json::object({{"stage", zero},
                               {"bytes_per_rank", state.sum()},
                               {"weights_bytes", state.weights},
                               {"gradients_bytes", state.gradients},
                               {"optimizer_bytes", state.optimizer}});
    if (memory > 0) {
      const auto least = planner::fewest_ranks(parameters, memory, zero, inputs);
      stage["fits"] = state.sum() <= memory;
      stage["margin_bytes"] = memory - state.sum();
      stage["fewest_ranks"] = least ? Json(*least) : Json();
    }
    stages.push_back(stage);
  }
  Json json = Json::object({{"parameters", parameters}, {"ranks", ranks}, {"zero", stages}});
  if (memory > 0) json["device_memory_bytes"] = memory;
  return json;
}

// The state of a number of parameters depends on the ranks and the types alone: a flag that would change nothing is
// refused, so that nobody takes the answer for one about it.
void refuse_beside_parameters(const Options& options, std::int64_t ranks) {
  LayoutFlags other = options.layout;  // but for what --ranks says, on which nothing is cut but the state
  for (auto& [text, said] : {std::pair<std::string&, std::int64_t>{other.tp, 1}, {other.pp, 1}, {other.dp, ranks}}) {
    if (text == fmt::format("{}", said)) text.clear();
  }
  const auto [layout, value] = other.given_flag();
  const RunFlags& run = options.run;
  const std::string framework = run.framework == RunFlags{}.framework ? "" : run.framework;
  const std::pair<std::string, const std::string&> flags[] = {
      {layout, value},           {"--cluster", run.cluster},   {"--devices", run.devices},
      {"--batch", run.batch},    {"--sequence", run.sequence}, {"--calibration", run.calibration},
      {"--framework", framework}};
  if (options.checkpoints) refuse("--checkpoints", "", "says nothing about --params", "leave it out, or give a model");
  for (const auto& [flag, text] : flags) {
    if (!text.empty()) refuse(flag, text, "says nothing about --params", "leave it out, or give a model");
  }
}

ExitCode plan_state(const Options& options) {
  const double parameters = parameter_count(options);
  const std::int64_t ranks = options.ranks.empty() ? 1 : whole_number("--ranks", options.ranks, "8", 1 << 24);
  refuse_beside_parameters(options, ranks);
  const plan::RunInputs inputs{.compute = options.run.compute(),
                               .fp32_gradients = options.run.fp32_gradients && is_narrow(options.run.compute())};
  const double memory = device_memory(options);
  if (options.json) {
    fmt::print("{}\n", state_json(parameters, ranks, inputs, memory).dump(2));
  } else {
    print_state(parameters, ranks, inputs, memory);
  }
  constexpr int kSmallest = 3;  // the stage that holds least
  const bool fits = memory <= 0 || planner::state_bytes(parameters, ranks, kSmallest, inputs).sum() <= memory;
  return fits ? ExitCode::kDone : ExitCode::kDoesNotFit;
}

// --- Of a model at a layout ------------------------------------------------------------------------------------------

constexpr const char* kPlainCluster = "devices";
// The sums of memory need no rates: hosts of 8 devices that compute and send at one unit.
cluster::Cluster plain_cluster(int world, double memory) {
  cluster::Cluster cluster;
  cluster.name = kPlainCluster;
  cluster.device = {.name = "device",
                    .memory = {static_cast<std::int64_t>(memory)},
                    .bf16_flops_per_s = 1,
                    .fp32_flops_per_s = 1,
                    .memory_bytes_per_s = 1};
  cluster.devices_per_host = std::min(world, 8);
  cluster.hosts = static_cast<int>(divide_up(world, cluster.devices_per_host));
  cluster.inside = cluster.between = {.bytes_per_s = 1, .latency = {}};
  return cluster;
}

struct StageRow {
  int stage = 0;
  int rank = 0;
  MemoryEstimate memory;
};

MemoryEstimate from_ledger(const Ledger& ledger, const planner::FrameworkConstants& framework) {
  MemoryEstimate memory;
  for (int i = 0; i < kMemoryClassCount; ++i) {
    const auto memory_class = static_cast<MemoryClass>(i);
    memory[memory_class] = static_cast<double>(ledger.at_peak(memory_class).count);
  }
  memory.ledger = static_cast<double>(ledger.peak_sum().count);
  memory.context = static_cast<double>(framework.context.count);
  memory.fragmentation = framework.fragmentation * memory.ledger;
  return memory;
}

// The walk takes time with each layer of each micro-batch, and a step repeats.
constexpr std::int64_t kMostWalked = 1 << 17;

// The engine's own layers: the walk through the program that the engine would run, on the first and the last tensor
// rank of each stage. Other frameworks, and steps too long to walk: the closed form.
std::vector<StageRow> training_rows(const planner::Problem& problem, const Choice& choice) {
  std::vector<StageRow> rows;
  const plan::Layout layout = choice.layout();
  const std::int64_t layers = problem.config.layers * (problem.global_batch / (choice.micro_batch * choice.dp));
  if (problem.framework.activations == planner::ActivationSet::kTrireme && layers <= kMostWalked) {
    const model::ParameterTable table = model::make_parameter_table(problem.config);
    for (int stage = 0; stage < choice.pp; ++stage) {
      StageRow worst{.stage = stage, .memory = {}};
      for (int tp : {0, choice.tp - 1}) {
        const int rank = plan::rank_of(layout, {.tp = tp, .pp = stage, .dp = 0});
        const MemoryEstimate memory =
            from_ledger(plan::predict_memory(table, layout, problem.batch(choice.micro_batch), problem.inputs, rank),
                        problem.framework);
        if (memory.ledger > worst.memory.ledger) worst = {stage, rank, memory};
      }
      rows.push_back(worst);
    }
    return rows;
  }
  const planner::Estimate estimate = planner::Evaluator(problem).estimate(choice);
  for (int stage = 0; stage < choice.pp; ++stage) {
    rows.push_back({stage, plan::rank_of(layout, {.tp = choice.tp - 1, .pp = stage, .dp = 0}),
                    estimate.memory[static_cast<std::size_t>(stage)]});
  }
  return rows;
}

struct Question {
  planner::Problem problem;
  Choice choice;
  double memory = 0;
  bool checkpoints = false;
};

// With what asynchronous saves hold through the run, where they are asked about.
std::vector<StageRow> stage_rows(const Question& question, const Choice& choice) {
  std::vector<StageRow> rows = training_rows(question.problem, choice);
  if (!question.checkpoints) return rows;
  const model::ParameterTable table = model::make_parameter_table(question.problem.config);
  for (StageRow& row : rows) {
    const Bytes staging = allocation_size(
        plan::checkpoint_staging_bytes(table, choice.layout(), row.rank, plan::CheckpointStaging::kSnapshot));
    row.memory[MemoryClass::kCheckpointStaging] += static_cast<double>(staging.count);
    row.memory.ledger += static_cast<double>(staging.count);
  }
  return rows;
}

const StageRow& worst_of(const std::vector<StageRow>& rows) {
  return *std::ranges::max_element(rows, {}, [](const StageRow& row) { return row.memory.total(); });
}

// As many sequences as fill the pipeline with micro-batches.
std::string filling_batch(const Options& options, const Choice& choice) {
  constexpr std::int64_t kMost = 1 << 24;
  const std::int64_t replicas = std::int64_t{choice.dp} * choice.pp;
  if (choice.micro_batch > kMost / replicas) {
    refuse("--micro-batch", options.layout.micro_batch,
           fmt::format("micro-batch x dp x pp must be at most {} sequences, or --batch be given", format_exact(kMost)),
           fmt::format("{}", kMost / replicas));
  }
  return fmt::format("{}", choice.micro_batch * replicas);
}

// What the model and the layout say by themselves may be said again.
void check_derived(const Options& options, const model::Config& config, const Choice& choice, bool has_cluster) {
  const std::int64_t world = choice.world();
  if (!options.ranks.empty() && whole_number("--ranks", options.ranks, "8", 1 << 24) != world) {
    refuse("--ranks", options.ranks, fmt::format("with a model the layout says how many ranks there are ({})", world),
           "--dp, --tp and --pp");
  }
  if (!has_cluster && !options.run.devices.empty() &&
      whole_number("--devices", options.run.devices, "8", 1 << 24) != world) {
    refuse("--devices", options.run.devices,
           fmt::format("without --cluster the layout says how many devices there are ({})", world), "give both");
  }
  if (options.params.empty()) return;
  constexpr double kRounding = 0.05;  // "7B" of 6.74e9
  const auto parameters = static_cast<double>(model::make_parameter_table(config).total());
  if (std::abs(parameter_count(options) / parameters - 1) <= kRounding) return;
  refuse("--params", options.params,
         fmt::format("a model says its own number of parameters ({})", format_exact(std::llround(parameters))),
         "leave one of the two out");
}

Question read_question(Options& options, Env& env) {
  const model::Config config = options.model.read(env, options.run.sequence);
  const planner::Wanted wanted = options.layout.read();
  // With a cluster the layout fills its devices; without one it is as large as its degrees say.
  std::optional<cluster::Cluster> given;
  if (!options.run.cluster.empty()) {
    given = options.run.read_cluster(env);
  }
  const Choice choice = planner::choice_of(wanted, given ? static_cast<int>(given->devices()) : 1);
  const double memory = device_memory(options);
  // The degrees before anything is counted with them.
  const Status degrees =
      plan::check_layout(config, choice.layout(), {.micro_batch = choice.micro_batch, .sequence = 1});
  if (!degrees && degrees.failure().option.rfind("layout.", 0) == 0) refuse_layout(degrees.failure());
  check_derived(options, config, choice, given.has_value());
  if (options.run.batch.empty()) options.run.batch = filling_batch(options, choice);
  const cluster::Cluster cluster = given ? *given : plain_cluster(choice.world(), memory);
  Question question{.problem = options.run.problem(env, config, cluster),
                    .choice = choice,
                    .memory = memory,
                    .checkpoints = options.checkpoints};
  if (memory <= 0 && given) question.memory = static_cast<double>(cluster.device.memory.count);
  if (!given && wanted.allow_slow_tp) {
    refuse("--allow-slow-tp", "", "without a cluster there are no hosts to leave", "give --cluster, or leave it out");
  }
  const Status legal = given ? planner::check_choice(question.problem, choice, wanted.allow_slow_tp)
                             : plan::check_layout(config, choice.layout(), question.problem.batch(choice.micro_batch));
  if (!legal) refuse_layout(legal.failure());
  return question;
}

// The fewest devices on which the model trains at this micro-batch and recompute kind, and the layout.
struct Smallest {
  std::int64_t devices = 0;
  std::optional<planner::NearMiss> layout;
};
Smallest smallest_world(const Question& question, const planner::Wanted& wanted) {
  constexpr std::int64_t kMost = 16384;
  planner::Problem problem = question.problem;
  problem.global_batch = kMost * question.choice.micro_batch;  // divisible by every power of two
  if (problem.cluster.devices_per_host < 8 && problem.cluster.name == kPlainCluster) {
    problem.cluster = plain_cluster(8, question.memory);
  }
  planner::SearchOptions search{.wanted = {}, .device_memory = {static_cast<std::int64_t>(question.memory)}};
  search.wanted.micro_batch = question.choice.micro_batch;
  search.wanted.recompute = wanted.recompute;
  search.wanted.interleave = 1;
  Smallest smallest;
  smallest.devices = planner::smallest_fitting_world(problem, search, kMost, smallest.layout);
  return smallest;
}

void print_rows(const Question& question, const std::vector<StageRow>& rows) {
  fmt::print("{}\n{}, micro-batch {} x {} tokens, batch {}, recompute {}\n\n", model_line(question.problem.config),
             plan::describe(question.choice.layout()), question.choice.micro_batch, question.problem.sequence,
             question.problem.global_batch, model::recompute_name(question.choice.recompute));
  fmt::print("{:<7}{:>7}{:>12}{:>12}{:>12}{:>13}{:>12}{:>12}{:>12}\n", "stage", "rank", "weights", "gradients",
             "optimizer", "activations", "the rest", "floor", "expected");
  for (const StageRow& row : rows) {
    const MemoryEstimate& m = row.memory;
    const double optimizer = m[MemoryClass::kMasterWeights] + m[MemoryClass::kMoments];
    const double named =
        m[MemoryClass::kWeights] + m[MemoryClass::kGradients] + optimizer + m[MemoryClass::kSavedActivations];
    fmt::print("{:<7}{:>7}{:>12}{:>12}{:>12}{:>13}{:>12}{:>12}{:>12}\n", row.stage, row.rank,
               bytes_text(m[MemoryClass::kWeights]), bytes_text(m[MemoryClass::kGradients]), bytes_text(optimizer),
               bytes_text(m[MemoryClass::kSavedActivations]), bytes_text(m.ledger - named), bytes_text(m.ledger),
               bytes_text(m.total()));
  }
  const StageRow& worst = worst_of(rows);
  fmt::print("\nthe worst rank: {} (stage {})\n", worst.rank, worst.stage);
  print_memory_classes(worst.memory);
}

void print_verdict(const Question& question, const StageRow& worst, const Smallest& smallest) {
  fmt::print("\n{}\n", fits_text(worst.memory.total(), question.memory));
  if (smallest.devices == 0) {
    fmt::print("no layout on up to 16,384 devices fits at micro-batch {}\n", question.choice.micro_batch);
    return;
  }
  fmt::print("fewest devices that would do: {}: {}\n", format_exact(smallest.devices),
             describe(smallest.layout->choice));
}

Json zero_list(const Question& question) {
  Json list = Json::array();
  for (int zero = 0; zero <= (question.choice.dp > 1 ? 3 : 0); ++zero) {
    Choice choice = question.choice;
    choice.zero = zero;
    choice.reduce = plan::default_reduce(zero);
    list.push_back(
        Json::object({{"stage", zero}, {"bytes_per_rank", worst_of(stage_rows(question, choice)).memory.total()}}));
  }
  return list;
}

Json to_json(const Question& question, const std::vector<StageRow>& rows, const Smallest& smallest) {
  Json stages = Json::array();
  for (const StageRow& row : rows) {
    stages.push_back(Json::object({{"stage", row.stage}, {"rank", row.rank}, {"memory", memory_json(row.memory)}}));
  }
  const StageRow& worst = worst_of(rows);
  Json json = Json::object({{"parameters", model::make_parameter_table(question.problem.config).total()},
                            {"layout", choice_json(question.choice)},
                            {"stages", stages},
                            {"worst_stage", worst.stage},
                            {"worst_rank", worst.rank},
                            {"bytes_per_rank", worst.memory.total()},
                            {"zero", zero_list(question)}});
  if (question.memory <= 0) return json;
  json["device_memory_bytes"] = question.memory;
  json["fits"] = worst.memory.total() <= question.memory;
  json["margin_bytes"] = question.memory - worst.memory.total();
  json["fewest_devices"] = smallest.devices;
  if (smallest.layout) json["fewest_devices_layout"] = choice_json(smallest.layout->choice);
  return json;
}

ExitCode plan_model_memory(Options& options, Env& env) {
  const Question question = read_question(options, env);
  const std::vector<StageRow> rows = stage_rows(question, question.choice);
  const Smallest smallest = question.memory > 0 ? smallest_world(question, options.layout.read()) : Smallest{};
  if (options.json) {
    fmt::print("{}\n", to_json(question, rows, smallest).dump(2));
  } else {
    print_rows(question, rows);
    if (question.memory > 0) print_verdict(question, worst_of(rows), smallest);
  }
  const bool fits = question.memory <= 0 || worst_of(rows).memory.total() <= question.memory;
  return fits ? ExitCode::kDone : ExitCode::kDoesNotFit;
}

}  // namespace

void declare_plan_memory(Command& plan, Env& env) {
  auto options = std::make_shared<Options>();
  Command& command = plan.command("memory", "Training state by ZeRO stage; with a model, every class of every stage");
  options->model.declare(command);
  options->run.declare(command);
  options->layout.declare(command);
  command.option("params", options->params, "a number of parameters instead of a model: 7B");
  command.option("ranks", options->ranks, "data-parallel ranks that share the state of --params");
  command.option("device-memory", options->device_memory, "of one device: says whether it fits");
  command.flag("checkpoints", options->checkpoints, "with the copy of the state that asynchronous checkpoints need");
  command.flag("json", options->json, "one JSON object on standard output");
  command.examples(
      "  trireme plan memory --params 7B --ranks 8 --device-memory 80GB\n"
      "  trireme plan memory examples/models/llama-3-8b --tp 2 --dp 4 --zero 1 --device-memory 80GB");
  command.run([options, &env] {
    if (options->params.empty() && !options->model.given()) {
      refuse("--params", "", "is needed, or a model", "write it like --params 7B");
    }
    return options->model.given() ? plan_model_memory(*options, env) : plan_state(*options);
  });
}

}  // namespace trireme::cli
