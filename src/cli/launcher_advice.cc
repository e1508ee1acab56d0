#include "cli/launcher_advice.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include <fmt/format.h>

#include "base/captured_output.h"
#include "base/process.h"
#include "base/words.h"

namespace trireme::cli {
namespace {

using train::Launcher;

constexpr std::size_t kMostShown = 200;  // characters of a line
// Of salloc's own shell: srun starts what it likes there.
constexpr std::string_view kInteractiveStep = "4294967290";

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool is_one_task_of_a_step() {
  return variable_is_set("SLURM_STEP_ID") && variable("SLURM_STEP_ID") != kInteractiveStep &&
         variable("SLURM_STEP_NUM_TASKS") == "1";
}

bool is_one_node() {
  for (const char* name : {"SLURM_JOB_NUM_NODES", "SLURM_NNODES"}) {
    if (variable_is_set(name)) return variable(name) == "1";
  }
  return true;
}

std::string program_of(const std::string& words) {
  const std::vector<std::string_view> list = words_of(words);
  return list.empty() ? "" : std::string(list.front());
}

std::string lower(std::string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

bool tells_of_a_failure(std::string_view line) {
  constexpr std::string_view kWords[] = {"error",        "not ",    "cannot",  "can't",    "unable",
                                         "fail",         "refused", "denied",  "no such",  "unknown",
                                         "unrecognized", "invalid", "missing", "timed out"};
  const std::string text = lower(line);
  return std::ranges::any_of(kWords, [&](std::string_view word) { return text.find(word) != std::string::npos; });
}

bool is_ornament(std::string_view line) {
  return std::ranges::none_of(line, [](unsigned char c) { return std::isalnum(c) != 0; });
}

std::string_view trimmed(std::string_view line) {
  const auto space = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  while (!line.empty() && space(line.front())) line.remove_prefix(1);
  while (!line.empty() && space(line.back())) line.remove_suffix(1);
  return line;
}

}  // namespace

Launcher chosen_launcher(const train::SuperviseConfig& config) {
  if (config.launcher != Launcher::kAuto) return config.launcher;
  if (variable_is_set("SLURM_JOB_ID")) {
    const bool needs_none = config.hosts.empty() && is_one_node();
    const bool has_srun = find_program(program_of(config.srun)).ok();
    return needs_none && (is_one_task_of_a_step() || !has_srun) ? Launcher::kThreads : Launcher::kSrun;
  }
  return config.hosts.empty() ? Launcher::kThreads : Launcher::kMpirun;
}

Status check_launcher(Launcher launcher, const train::SuperviseConfig& supervise) {
  if (launcher != Launcher::kMpirun && launcher != Launcher::kSrun) return ok_status();
  const bool slurm = launcher == Launcher::kSrun;
  const std::string& words = slurm ? supervise.srun : supervise.mpirun;
  const Result<std::string> program = find_program(program_of(words));
  if (program) return ok_status();
  const std::string here = supervise.hosts.empty() ? "--supervise.launcher threads, which runs all ranks in one process"
                                                   : "the launcher that reaches these hosts";
  return Failure{.option = slurm ? "supervise.srun" : "supervise.mpirun",
                 .value = words,
                 .rule = fmt::format("{} {}", program.failure().value.empty() ? "it" : program.failure().value,
                                     program.failure().rule),
                 .nearest = "its path; or " + here};
}

std::string meaningful_line(std::string_view said) {
  std::string_view first;
  while (!said.empty()) {
    const std::size_t end = std::min(said.find('\n'), said.size());
    const std::string_view line = trimmed(said.substr(0, end));
    said.remove_prefix(std::min(end + 1, said.size()));
    if (is_ornament(line)) continue;
    if (first.empty()) first = line;
    if (!tells_of_a_failure(line)) continue;
    first = line;
    break;
  }
  return std::string(first.substr(0, kMostShown));
}

std::string launcher_advice(const WorkerCommands& commands, std::string_view said, std::string_view mpi_types) {
  const bool slurm = commands.launcher == Launcher::kSrun;
  if (slurm && said.find("PMI") != std::string_view::npos) {
    for (const std::string_view type : {"pmix", "pmi2"}) {
      if (mpi_types.find(type) == std::string_view::npos) continue;
      return fmt::format("this srun has {0}: --supervise.srun \"{1} --mpi={0}\"", type, commands.supervise.srun);
    }
    return "a Slurm and an MPI with the same PMI (srun --mpi=list tells this one's)";
  }
  if (!commands.supervise.hosts.empty()) {
    return fmt::format("does {} work by hand on each of supervise.hosts = {}?",
                       slurm ? "srun" : "ssh, without a password,", commands.supervise.hosts);
  }
  return "--supervise.launcher threads runs all ranks in one process of this host";
}

std::string mpi_types_of(const WorkerCommands& commands) {
  if (commands.launcher != Launcher::kSrun) return "";
  ChildCommand command{.arguments = {program_of(commands.supervise.srun), "--mpi=list"}, .environment = {}};
  command.captured = true;
  try {
    const std::unique_ptr<Child> child = start_child(command);
    return CapturedOutput(child->take_output()).end();
  } catch (const Error&) {
    return "";
  }
}

}  // namespace trireme::cli
