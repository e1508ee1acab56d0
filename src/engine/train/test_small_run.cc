#include "engine/train/test_small_run.h"

#include <fmt/format.h>

#include "checkpoint/store.h"
#include "engine/data/tokenize.h"
#include "engine/train/run_directory.h"
#include "model/test_configs.h"

namespace trireme::train {
namespace {

void add_files(FakeEnv& env, const std::string& path, Files& files) {
  if (!env.is_directory(path)) {
    files[path] = env.content(path);
    return;
  }
  for (const std::string& name : env.list_directory(path)) {
    add_files(env, path == "." ? name : join_path(path, name), files);
  }
}

// Of the last line that is whole: a full disk may have a part of the next.
std::int64_t last_step(std::string metrics) {
  metrics.resize(metrics.rfind('\n') + 1);
  if (metrics.empty()) return 0;
  const std::size_t before = metrics.rfind('\n', metrics.size() - 2);
  const std::string line = metrics.substr(before == std::string::npos ? 0 : before + 1);
  return parse_json(line, "line").or_throw().find("step")->as_integer();
}

}  // namespace

SmallRun::SmallRun() : SmallRun(std::make_unique<FakeEnv>()) {}

SmallRun::SmallRun(std::unique_ptr<FakeEnv> env) : env_(std::move(env)) {
  env_->set_tick(Seconds{0.1});
  make_inputs();
}

SmallRun::SmallRun(const Files& files) : env_(std::make_unique<FakeEnv>()) {
  env_->set_tick(Seconds{0.1});
  for (const auto& [path, content] : files) env_->put_file(path, content);
}

void SmallRun::make_inputs() {
  std::string text;
  for (int i = 0; text.size() < 3000; ++i) text += "oar " + std::to_string(i % 17) + " stroke ";
  env_->put_file("text.txt", text);
  data::tokenize_text(*env_, {.text_path = "text.txt", .out_directory = "data", .progress = {}}).or_throw();
  model::Config config = model::small_llama();
  config.vocabulary = 256;
  env_->put_file("config.json", model::to_hugging_face(config).dump(2));
}

Files SmallRun::files(const std::string& under) const {
  Files found;
  const std::string start = under.empty() ? "." : under;
  if (env_->exists(start)) add_files(*env_, start, found);
  return found;
}

ResolvedRun SmallRun::resolved(const Settings& more) {
  Settings settings{
      {"model.config", "config.json"}, {"data.train", "data/train.bin"},    {"train.steps", std::to_string(kSteps)},
      {"train.sequence", "8"},         {"train.global_batch", "4"},         {"train.micro_batch", "1"},
      {"train.threads", "1"},          {"optimizer.learning_rate", "0.01"}, {"checkpoint.interval", "2"},
      {"out.directory", "out"}};
  settings.insert(settings.end(), more.begin(), more.end());
  return resolve_run(*env_, make_run_config(Json::object(), settings).or_throw());
}

SmallRun::Outcome SmallRun::run(const Settings& more, const std::function<bool(std::int64_t)>& after_step) {
  log_ = MemoryLog();
  try {
    const ResolvedRun run = resolved(more);
    const std::unique_ptr<RunWorld> world = make_thread_run_world(run.config.layout.world(), Seconds{kDeadline});
    const auto stop = [&] { return after_step && after_step(last_step(env_->content(metrics_of(run.config.out)))); };
    TrainHooks own = hooks;
    own.stop_requested = stop;
    const TrainOutcome outcome = train(*env_, log_, run, *world, own);
    return {.code = outcome.interrupted ? ExitCode::kInterrupted : ExitCode::kDone,
            .first_step = outcome.first_step,
            .steps_done = outcome.steps_done,
            .error = ""};
  } catch (const Error& error) {
    const std::string hint = error.hint().empty() ? "" : "; " + error.hint();
    return {.code = error.code(), .error = error.what() + hint};
  }
}

std::vector<std::string> SmallRun::curve(const std::string& out) {
  std::vector<std::string> lines;
  const std::string metrics = env_->content(metrics_of(out));
  for (std::size_t begin = 0; begin < metrics.size(); begin = metrics.find('\n', begin) + 1) {
    const Json line = parse_json(metrics.substr(begin, metrics.find('\n', begin) - begin), "line").or_throw();
    lines.push_back(fmt::format("{} {} {}", line.find("step")->as_integer(), line.find("loss_hex")->as_string(),
                                line.find("grad_norm_hex")->as_string()));
  }
  return lines;
}

std::string SmallRun::logged() const {
  std::string text;
  for (const auto& [level, line] : log_.lines()) {
    text += (level == LogLevel::kWarning ? "warning: " : "") + line + "\n";
  }
  return text;
}

std::string checkpoint_path(std::int64_t step) {
  return join_path(checkpoints_of("out"), checkpoint::name_of_step(step));
}

void damage(FakeEnv& env, const std::string& path, std::size_t byte, unsigned mask) {
  std::string content = env.content(path);
  content.at(byte) = static_cast<char>(static_cast<unsigned char>(content[byte]) ^ mask);
  env.put_file(path, content);
}

}  // namespace trireme::train
