#include "cli/arguments.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <optional>
#include <system_error>

#include <CLI/CLI.hpp>

#include "base/check.h"
#include "base/error.h"
#include "base/exception_code.h"
#include "base/json.h"
#include "base/limit_failure.h"
#include "base/screen.h"
#include "base/standard_streams.h"
#include "cli/unknown_option.h"

namespace trireme::cli {
namespace {

class CliCommand : public Command {
 public:
  explicit CliCommand(CLI::App& app, std::string full_name) : app_(app), full_name_(std::move(full_name)) {}
  const std::string& full_name() const { return full_name_; }

  void positional(const std::string& name, std::string& value, const std::string& help, bool required) override {
    CLI::Option* option = app_.add_option(name, value, help);
    if (required) option->required();
    first_positional_ = &value;
  }
  void positionals(const std::string& name, std::vector<std::string>& values, const std::string& help) override {
    app_.add_option(name, values, help)->required();
  }
  void option(const std::string& name, std::string& value, const std::string& help) override {
    app_.add_option("--" + name, value, help);
  }
  void option(const std::string& name, std::int64_t& value, const std::string& help) override {
    app_.add_option("--" + name, value, help)->capture_default_str();
  }
  void option(const std::string& name, double& value, const std::string& help) override {
    app_.add_option("--" + name, value, help)->capture_default_str();
  }
  void flag(const std::string& name, bool& value, const std::string& help) override {
    app_.add_flag("--" + name, value, help);
  }
  void settings(std::vector<std::pair<std::string, std::string>>& values) override {
    app_.allow_extras();
    settings_ = &values;
  }
  void version(const std::string& text) override {
    app_.add_flag("-V,--version", version_asked_, "the version, how it was built, and what bits depend on");
    version_ = text;
  }
  void examples(const std::string& text) override { app_.footer("Examples:\n" + text); }
  void run(std::function<ExitCode()> action) override { action_ = std::move(action); }
  void keeps_results(std::function<bool()> kept) override { kept_ = std::move(kept); }
  Command& command(const std::string& name, const std::string& help) override {
    CLI::App* child = app_.add_subcommand(name, help);
    app_.require_subcommand(0, 1);
    children_.push_back(std::make_unique<CliCommand>(*child, full_name_ + " " + name));
    return *children_.back();
  }

  // The innermost command that was asked for; where the version was, the one that tells it.
  CliCommand& chosen() {
    if (version_asked_) return *this;
    for (const auto& child : children_) {
      if (child->app_.parsed()) return child->chosen();
    }
    return *this;
  }

  ExitCode act() {
    if (version_asked_) {
      fmt::print(stdout, "{}\n", version_);
      return ExitCode::kDone;
    }
    if (settings_ != nullptr) collect_settings();
    if (!action_) {
      fmt::print(stdout, "{}", app_.help());
      return ExitCode::kUsage;
    }
    return action_();
  }

  bool results_are_kept() const { return kept_ && kept_(); }

  // A command was meant where a group of commands takes a word of its own: "plan flet". "" where none is near.
  std::string meant_command() const {
    if (first_positional_ == nullptr) return "";
    std::vector<std::string> names;
    for (const auto& child : children_) names.push_back(child->app_.get_name());
    const std::string nearest = nearest_word(*first_positional_, names);
    return nearest.empty() ? "" : full_name_ + " " + nearest;
  }

  bool takes_keys() const { return settings_ != nullptr; }

  // Its options and commands, as they are written.
  std::vector<std::string> known_options() const {
    std::vector<std::string> names;
    for (const CLI::Option* option : app_.get_options()) names.push_back(option->get_name());
    for (const CLI::App* child : app_.get_subcommands({})) names.push_back(child->get_name());
    return names;
  }
  std::vector<std::string> options_above() const {
    std::vector<std::string> names;
    for (const CLI::App* app = app_.get_parent(); app != nullptr; app = app->get_parent()) {
      for (const CLI::Option* option : app->get_options()) names.push_back(option->get_name());
    }
    return names;
  }

 private:
  void collect_settings() {
    const std::vector<std::string> rest = app_.remaining();
    for (std::size_t i = 0; i < rest.size(); ++i) {
      const std::string& word = rest[i];
      const std::size_t equals = word.find('=');
      if (word.rfind("--", 0) != 0 || word.find('.') == std::string::npos) {
        if (word.rfind("--", 0) == 0) throw Error(unknown_option(word, known_options(), true));
        throw Error(Failure{.option = word, .value = "", .rule = "is not expected here", .nearest = ""});
      }
      if (equals != std::string::npos) {
        settings_->emplace_back(word.substr(2, equals - 2), word.substr(equals + 1));
      } else if (i + 1 < rest.size()) {
        settings_->emplace_back(word.substr(2), rest[++i]);
      } else {
        throw Error(Failure{.option = word, .value = "", .rule = "needs a value", .nearest = ""});
      }
    }
  }

  CLI::App& app_;
  std::string full_name_;
  std::vector<std::unique_ptr<CliCommand>> children_;
  std::vector<std::pair<std::string, std::string>>* settings_ = nullptr;
  std::function<ExitCode()> action_;
  std::function<bool()> kept_;
  const std::string* first_positional_ = nullptr;
  bool version_asked_ = false;
  std::string version_;
};

// Standard error may be closed or full: that must not hide the exit code.
// A line, which may end with its '\n'; another process may have left a status on the terminal.
void complain(std::string_view text) {
  if (text.ends_with('\n')) text.remove_suffix(1);
  Screen(write_to_stderr, stderr_columns).line(text);
}

// The first option that neither the command nor one above it has.
std::optional<Failure> first_unknown_option(const CliCommand& command, int argc, char** argv) {
  const std::vector<std::string> known = command.known_options(), above = command.options_above();
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const std::string name = word.substr(0, word.find('='));
    if (name.size() <= 2 || !name.starts_with("--")) continue;
    if (command.takes_keys() && name.find('.') != std::string::npos) continue;
    const auto has = [&](const std::vector<std::string>& names) {
      return std::ranges::find(names, name) != names.end();
    };
    if (!has(known) && !has(above)) return unknown_option(word, known, command.takes_keys());
  }
  return std::nullopt;
}

// The first word that the command did not expect.
Failure unexpected_word(const CliCommand& command, std::string_view refusal, int argc, char** argv) {
  std::string word;
  for (int i = 1; i < argc && word.empty(); ++i) {
    if (refusal.find(argv[i]) != std::string_view::npos) word = argv[i];
  }
  const std::string nearest = nearest_word(word, command.known_options());
  return {.option = word,
          .value = "",
          .rule = "is not expected here",
          .nearest = nearest.empty() ? "" : fmt::format("did you mean {}?", nearest)};
}

// What the parser refused. An option that there is not comes before what is needed beside it.
std::string refusal_text(const CLI::ParseError& error, const CliCommand& command, int argc, char** argv) {
  const bool extras = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
  if (extras || dynamic_cast<const CLI::RequiredError*>(&error) != nullptr) {
    if (const std::optional<Failure> option = first_unknown_option(command, argc, argv)) return option->sentence();
  }
  return extras ? unexpected_word(command, error.what(), argc, argv).sentence() : error.what();
}

int usage_error(const CLI::ParseError& error, const CliCommand& command, int argc, char** argv) {
  complain(fmt::format("error: {}\n", refusal_text(error, command, argc, argv)));
  if (const std::string meant = command.meant_command(); !meant.empty()) {
    complain(fmt::format("did you mean {}?\n", meant));
  }
  complain(fmt::format("`{} --help` shows what there is\n", command.full_name()));
  return static_cast<int>(ExitCode::kUsage);
}

// The one place where exceptions of a command end.
ExitCode act(CliCommand& command) {
  try {
    return command.act();
  } catch (const Error& error) {
    complain(fmt::format("error: {}\n", error.what()));
    if (!error.hint().empty()) complain(fmt::format("hint: {}\n", error.hint()));
    const std::string meant = error.code() == ExitCode::kUsage ? command.meant_command() : "";
    if (!meant.empty()) complain(fmt::format("did you mean {}?\n", meant));
    return error.code();
  } catch (const std::exception& error) {
    const std::string limit = limit_failure(error);
    complain(limit.empty() ? fmt::format("internal error: {}\n", error.what()) : fmt::format("error: {}\n", limit));
    return code_of(error);
  }
}

// The code of a command that has ended with `code`, given what became of its standard output.
ExitCode after_output(ExitCode code, int failure, bool kept) {
  const std::string reason = std::generic_category().message(failure);
  if (failure == 0) return code;
  if (kept) {
    complain(fmt::format("warning: standard output could not be written ({}); what was done stays done\n", reason));
    return code;
  }
  if (failure == EPIPE) return code;  // the reader has what it wanted
  complain(fmt::format("error: standard output could not be written: {}\n", reason));
  return code == ExitCode::kDone ? ExitCode::kStorage : code;
}

}  // namespace

ExitCode run_program(int argc, char** argv, const std::function<void(Command&)>& declare) {
  StandardStreams streams;
  CLI::App app("Trireme plans, trains and keeps alive one large transformer over many accelerators.", "trireme");
  app.require_subcommand(0, 1);
  CliCommand root(app, "trireme");
  declare(root);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) return static_cast<ExitCode>(usage_error(error, root.chosen(), argc, argv));
    fmt::print(stdout, "{}", app.help());  // was asked for
    return after_output(ExitCode::kDone, streams.flush_output(), false);
  }
  const ExitCode code = act(root.chosen());
  return after_output(code, streams.flush_output(), root.chosen().results_are_kept());
}

void check_range(const std::string& flag, std::int64_t value, std::int64_t least, std::int64_t most,
                 const std::string& nearest) {
  if (value >= least && value <= most) return;
  throw Error(Failure{.option = flag,
                      .value = fmt::format("{}", value),
                      .rule = fmt::format("must be between {} and {}", least, most),
                      .nearest = nearest});
}

}  // namespace trireme::cli
