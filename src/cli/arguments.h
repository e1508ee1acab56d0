#pragma once

// The arguments of one command: a thin shape over the option parser, which lives in arguments.cc alone.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/exit_code.h"

namespace trireme::cli {

// A command: its declared options, and what it does with them.
class Command {
 public:
  virtual ~Command() = default;
  virtual void positional(const std::string& name, std::string& value, const std::string& help, bool required) = 0;
  // One or more.
  virtual void positionals(const std::string& name, std::vector<std::string>& values, const std::string& help) = 0;
  virtual void option(const std::string& name, std::string& value, const std::string& help) = 0;
  virtual void option(const std::string& name, std::int64_t& value, const std::string& help) = 0;
  virtual void option(const std::string& name, double& value, const std::string& help) = 0;
  virtual void flag(const std::string& name, bool& value, const std::string& help) = 0;
  // Collects every other "--section.key value" in the order given.
  virtual void settings(std::vector<std::pair<std::string, std::string>>& values) = 0;
  // -V and --version print it.
  virtual void version(const std::string& text) = 0;
  virtual void examples(const std::string& text) = 0;
  virtual void run(std::function<ExitCode()> action) = 0;
  // What the command has come to is in files too, where this says so: that it cannot be printed is a warning then.
  virtual void keeps_results(std::function<bool()> kept) = 0;
  virtual Command& command(const std::string& name, const std::string& help) = 0;
};

// Declares commands with `declare`, parses the arguments, runs the chosen one. Usage errors: a sentence with the
// nearest known option, and ExitCode::kUsage. Errors of the action are printed and give their own exit code. A reader
// of standard output that leaves early is no failure; where it cannot be written, the result is lost:
// ExitCode::kStorage.
ExitCode run_program(int argc, char** argv, const std::function<void(Command&)>& declare);

// Refuses an option's value outside [least, most] (Error with ExitCode::kUsage).
void check_range(const std::string& flag, std::int64_t value, std::int64_t least, std::int64_t most,
                 const std::string& nearest);

}  // namespace trireme::cli
