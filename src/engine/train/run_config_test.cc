#include "engine/train/run_config.h"

#include <gtest/gtest.h>

#include "base/fake_env.h"

namespace trireme::train {
namespace {

using Overrides = std::vector<std::pair<std::string, std::string>>;

Result<RunConfig> from(const std::string& toml, const Overrides& overrides = {}) {
  Result<Json> file = parse_toml(toml, "run.toml");
  if (!file) return file.failure();
  return make_run_config(*file, overrides);
}

const std::string kLeast = "[model]\nconfig = 'm'\n[data]\ntrain = 't'\n";

std::string refusal(const std::string& toml, const Overrides& overrides = {}) {
  const Result<RunConfig> config = from(toml, overrides);
  return config.ok() ? "" : config.failure().sentence();
}

TEST(RunConfig, ReadsSectionsAndKeepsDefaults) {
  const RunConfig config =
      from(kLeast +
           "[train]\nsteps = 7\n[optimizer]\nlearning_rate = 0.5\ndecay = 'linear'\n[layout]\nrecompute = 'full'\n")
          .value();
  EXPECT_EQ(config.steps, 7);
  EXPECT_EQ(config.learning_rate.total_steps, 7);
  EXPECT_EQ(config.learning_rate.peak, 0.5);
  EXPECT_EQ(config.learning_rate.decay, optim::Decay::kLinear);
  EXPECT_EQ(config.layout.recompute, model::Recompute::kFull);
  EXPECT_EQ(config.layout.tp, 1);
}

TEST(RunConfig, TheCommandLineWinsOverTheFile) {
  const RunConfig config = from(kLeast + "[train]\nsteps = 7\n", {{"train.steps", "50"},
                                                                  {"layout.tp", "4"},
                                                                  {"optimizer.learning_rate", "1e-3"},
                                                                  {"out.overwrite", "true"},
                                                                  {"model.config", "other"}})
                               .value();
  EXPECT_EQ(config.steps, 50);
  EXPECT_EQ(config.layout.tp, 4);
  EXPECT_EQ(config.learning_rate.peak, 1e-3);
  EXPECT_TRUE(config.overwrite);
  EXPECT_EQ(config.model_config, "other");
}

TEST(RunConfig, TraceStepsAreWithinTheRun) {
  const auto steps = [](const Overrides& overrides) {
    const RunConfig config = from(kLeast + "[train]\nsteps = 40\n[out]\ntrace = 't.json'\n", overrides).or_throw();
    return std::pair(config.trace_first, config.trace_last);
  };
  EXPECT_EQ(steps({}), std::pair(std::int64_t{3}, std::int64_t{5}));
  EXPECT_EQ(steps({{"train.steps", "4"}}), std::pair(std::int64_t{3}, std::int64_t{4}));
  EXPECT_EQ(steps({{"train.steps", "1"}}), std::pair(std::int64_t{1}, std::int64_t{1}));
  EXPECT_EQ(steps({{"out.trace_steps", "7"}}), std::pair(std::int64_t{7}, std::int64_t{7}));
  EXPECT_EQ(steps({{"out.trace_steps", "40-40"}}), std::pair(std::int64_t{40}, std::int64_t{40}));
  EXPECT_EQ(from(kLeast).or_throw().trace, "");

  const std::pair<const char*, const char*> cases[] = {
      {"0-2", "steps count from 1"},
      {"5-3", "must not be before the first; nearest legal: 3-5"},
      {"3-", "must be a step or two"},
      {"-3", "steps count from 1"},
      {"3-4-5", "must be a step or two"},
      {"all", "must be a step or two"},
      {"1-101", "may be 100 steps at most; nearest legal: 1-100"},
      {"39-41", "the run has 40 steps; nearest legal: 39-40"},
      {"99999999999999999999", "must be a step or two"},
  };
  for (const auto& [text, rule] : cases) {
    const std::string said =
        refusal(kLeast, {{"train.steps", "40"}, {"out.trace", "t.json"}, {"out.trace_steps", text}});
    EXPECT_NE(said.find("out.trace_steps"), std::string::npos) << said;
    EXPECT_NE(said.find(rule), std::string::npos) << said;
  }
  EXPECT_NE(refusal(kLeast, {{"out.trace_steps", "3-5"}}).find("is used with out.trace only"), std::string::npos);
  EXPECT_NE(refusal(kLeast + "[out]\ntrace_steps = 3\n").find("must be text"), std::string::npos);
}

TEST(RunConfig, UnknownKeysAreRefusedWithTheNearestName) {
  EXPECT_NE(refusal(kLeast + "[train]\nstepz = 7\n").find("train.steps"), std::string::npos);
  EXPECT_NE(refusal(kLeast, {{"layot.tp", "2"}}).find("layout.tp"), std::string::npos);
  EXPECT_NE(refusal(kLeast + "[checkpoint]\ninterva = 5\n").find("checkpoint.interval"), std::string::npos);
  EXPECT_NE(refusal("steps = 3\n").find("steps"), std::string::npos);
}

TEST(RunConfig, CheckpointKeysAreReadAndTheirRulesKept) {
  const std::string file = kLeast + "[checkpoint]\ninterval = 200\nkeep_every = 1000\n";
  const RunConfig run = make_run_config(parse_toml(file, "run").or_throw(), {}).or_throw();
  EXPECT_EQ(run.save_interval, (SaveInterval{.kind = SaveInterval::Kind::kSteps, .steps = 200, .time = {}}));
  EXPECT_EQ(run.retention, (checkpoint::Retention{.keep_last = 2, .keep_every = 1000}));
  EXPECT_TRUE(run.async_saves);
  EXPECT_EQ(make_run_config(parse_toml(to_toml(run), "run").or_throw(), {}).or_throw().save_interval,
            run.save_interval);
  EXPECT_NE(refusal(kLeast, {{"checkpoint.interval", "0"}}).find("checkpoint.interval = \"0\""), std::string::npos);
  EXPECT_NE(refusal(kLeast, {{"checkpoint.mtbf", "never"}}).find("must be a time from 1ms to"), std::string::npos);
  EXPECT_NE(refusal(kLeast, {{"checkpoint.mtbf", "30"}}).find("checkpoint.mtbf = 30: has no unit"), std::string::npos);
  EXPECT_NE(
      refusal(kLeast, {{"train.memory_limit", "8"}}).find("train.memory_limit = 8: has no unit; did you mean 8GB"),
      std::string::npos);
  EXPECT_EQ(from(kLeast, {{"train.memory_limit", "8000000000"}}).value().memory_limit, Bytes{8'000'000'000});
  EXPECT_EQ(from(kLeast, {{"train.memory_limit", "79.1GiB"}}).value().memory_limit, Bytes{84'932'978'278});
  EXPECT_NE(refusal(kLeast, {{"checkpoint.interval", "5"}, {"checkpoint.mtbf", "3h"}}).find("auto only"),
            std::string::npos);
  EXPECT_NE(refusal(kLeast, {{"checkpoint.interval", "none"}, {"checkpoint.keep_last", "3"}}).find("a run that saves"),
            std::string::npos);
  EXPECT_NE(refusal(kLeast, {{"checkpoint.accept", "lr"}}).find("nearest legal: optimizer.learning_rate"),
            std::string::npos);
  EXPECT_NE(refusal(kLeast, {{"checkpoint.accept", "train.step"}}).find("nearest legal: train.steps"),
            std::string::npos);
}

// Whatever a key is given, in the file or on the command line: taken, and then the resolved file gives the same run; or
// refused with the key's name.
TEST(RunConfig, EveryKeyTakesOrRefusesAnything) {
  const char* values[] = {"nan",
                          "inf",
                          "-inf",
                          "+inf",
                          "1e400",
                          "-1e400",
                          "1e-400",
                          "-0",
                          "-0.0",
                          "0",
                          "-1",
                          "1",
                          "0.5",
                          "1e15",
                          "1e18",
                          "9223372036854775807",
                          "9223372036854775808",
                          "-9223372036854775808",
                          "18446744073709551616",
                          "2147483648",
                          "1e300",
                          "1e308s",
                          "1e-300s",
                          "inf s",
                          "nan s",
                          "0s",
                          "5min",
                          "99999999999y",
                          "1e30GB",
                          "8GB",
                          "",
                          " ",
                          "=",
                          "--x",
                          "\n",
                          "\x01",
                          "\xff",
                          "true",
                          "/",
                          "auto",
                          "none",
                          "1-1",
                          "0x10",
                          "1_000",
                          "+5"};
  for (const RunKey& key : run_keys()) {
    const std::size_t dot = key.name.find('.');
    for (const char* value : values) {
      Json file = Json::object({{"model", Json::object({{"config", "m"}})}, {"data", Json::object({{"train", "t"}})}});
      std::vector<Result<RunConfig>> results{make_run_config(file, {{key.name, value}})};
      for (const Json& typed : {Json(value), Json(std::int64_t{1} << 62), Json(1e300), Json(-0.0), Json(true),
                                Json(Json::Array{1}), Json(nullptr), Json::object({})}) {
        file[key.name.substr(0, dot)][key.name.substr(dot + 1)] = typed;
        results.push_back(make_run_config(file, {}));
      }
      for (const Result<RunConfig>& result : results) {
        if (!result) {
          const std::string said = result.failure().sentence();
          const bool named = said.find(key.name) != std::string::npos || said.find("optimizer.") != std::string::npos;
          EXPECT_TRUE(named) << key.name << " = " << value << ": " << said;
          continue;
        }
        const RunConfig again = from(to_toml(*result)).or_throw();
        EXPECT_EQ(to_toml(again), to_toml(*result)) << key.name << " = " << value;
      }
    }
  }
}

TEST(RunConfig, DeadlinesDoNotContradictOneAnother) {
  const auto floor = [](const Overrides& overrides) { return from(kLeast, overrides).or_throw().supervise.hang_floor; };
  EXPECT_EQ(floor({}), Seconds{2});
  EXPECT_EQ(floor({{"train.deadline", "1"}}), Seconds{1});
  EXPECT_EQ(floor({{"train.start_deadline", "0.5"}}), Seconds{0.5});
  EXPECT_EQ(floor({{"supervise.hang_floor", "2min"}}), Seconds{120});
  EXPECT_EQ(refusal(kLeast, {{"supervise.hang_floor", "5min"}}),
            "supervise.hang_floor = 5m: must not be above train.deadline (2m); nearest legal: 2m");
  EXPECT_EQ(refusal(kLeast + "[supervise]\nhang_floor = '3s'\n", {{"train.start_deadline", "1"}}),
            "supervise.hang_floor = 3s: must not be above train.start_deadline (1s); nearest legal: 1s");
}

TEST(RunConfig, DeadlinesAreSecondsOrHaveTheirUnit) {
  const auto deadline = [](const std::string& file, const Overrides& overrides) {
    return from(kLeast + file, overrides).or_throw().deadline_s;
  };
  EXPECT_EQ(deadline("", {{"train.deadline", "30"}}), 30.0);
  EXPECT_EQ(deadline("", {{"train.deadline", "2.5"}}), 2.5);
  EXPECT_EQ(deadline("", {{"train.deadline", "3m"}}), 180.0);
  EXPECT_EQ(deadline("[train]\ndeadline = 40\n", {}), 40.0);
  EXPECT_EQ(deadline("[train]\ndeadline = '40s'\n", {}), 40.0);
  EXPECT_EQ(refusal(kLeast, {{"train.deadline", "0"}}), "train.deadline = 0: must be in [0.001, 1000000) seconds");
  EXPECT_EQ(refusal(kLeast, {{"train.deadline", "30d"}}),
            "train.deadline = \"30d\": must be in [0.001, 1000000) seconds");
  EXPECT_EQ(refusal(kLeast + "[train]\ndeadline = true\n"),
            "train.deadline = true: must be seconds, or text with a unit; nearest legal: 30, \"10min\"");
}

TEST(RunConfig, WrongValuesNameTheRule) {
  for (const char* wrong :
       {"[train]\nsteps = 0\n", "[train]\nsteps = 'x'\n", "[train]\nsteps = 1.5\n", "[optimizer]\nbeta1 = 1.0\n",
        "[optimizer]\nlearning_rate = -1.0\n", "[optimizer]\ndecay = 'cos'\n", "[layout]\nrecompute = 'some'\n",
        "[layout]\nsequence_parallel = 1\n", "[out]\ndirectory = 3\n", "[optimizer]\nwarmup_steps = 1000\n",
        "[optimizer]\ndecay_steps = 5\n", "[optimizer]\nmin_learning_rate = 1.0\n", "[layout]\ntp = 3000000000\n",
        "[data]\nignore = -2\n", "[layout]\nall_reduce = 'rign'\n"}) {
    EXPECT_NE(refusal(kLeast + wrong), "") << wrong;
  }
  EXPECT_NE(refusal(kLeast, {{"train.steps", "many"}}), "");
  EXPECT_NE(refusal(kLeast, {{"train.steps", "1e30"}}), "");
  EXPECT_NE(refusal("[data]\ntrain = 't'\n").find("model.config"), std::string::npos);
  EXPECT_NE(refusal("[model]\nconfig = 'm'\n").find("data.train"), std::string::npos);
  EXPECT_NE(refusal("layout = 'auto'\n" + kLeast).find("layout"), std::string::npos);
}

TEST(RunConfig, ReduceFollowsTheZeroStageUnlessGiven) {
  EXPECT_EQ(from(kLeast + "[layout]\nzero = 3\n").value().layout.reduce, plan::ReduceWhen::kMicrobatch);
  EXPECT_EQ(from(kLeast + "[layout]\nzero = 3\nreduce = 'step'\n").value().layout.reduce, plan::ReduceWhen::kStep);
  EXPECT_EQ(from(kLeast, {{"layout.zero", "2"}, {"layout.reduce", "step"}}).value().layout.reduce,
            plan::ReduceWhen::kStep);
}

TEST(RunConfig, TheResolvedFileIsTheSameRun) {
  const RunConfig config =
      from(kLeast, {{"train.steps", "50"}, {"optimizer.epsilon", "1e-9"}, {"layout.all_reduce", "recursive-doubling"}})
          .value();
  EXPECT_EQ(config.layout.all_reduce, ReduceAlgorithm::kRecursiveDoubling);
  const RunConfig again = from(to_toml(config)).value();
  for (const RunKey& key : run_keys()) EXPECT_EQ(key.get(again), key.get(config)) << key.name;
}

TEST(RunConfig, AMissingFileIsNamed) {
  FakeEnv env;
  const Result<RunConfig> config = load_run_config(env, "nothing.toml", {});
  ASSERT_FALSE(config.ok());
  EXPECT_NE(config.failure().sentence().find("nothing.toml"), std::string::npos);
}

}  // namespace
}  // namespace trireme::train
