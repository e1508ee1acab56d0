#include "engine/train/trainer.h"

#include <gtest/gtest.h>

#include "base/fake_env.h"
#include "checkpoint/difference.h"
#include "checkpoint/lease.h"
#include "checkpoint/reader.h"
#include "checkpoint/store.h"
#include "engine/data/tokenize.h"
#include "engine/train/generate.h"
#include "model/test_configs.h"
#include "telemetry/trace.h"

namespace trireme::train {
namespace {

class Trainer : public ::testing::Test {
 protected:
  Trainer() {
    env_.set_tick(Seconds{0.1});
    std::string text;
    for (int i = 0; text.size() < 4000; ++i) text += "oar " + std::to_string(i % 17) + " stroke ";
    env_.put_file("text.txt", text);
    data::tokenize_text(env_, {.text_path = "text.txt", .out_directory = "data", .progress = {}}).or_throw();
    model::Config config = model::small_llama();
    config.vocabulary = 256;
    env_.put_file("config.json", model::to_hugging_face(config).dump(2));
  }

  using Settings = std::vector<std::pair<std::string, std::string>>;
  ResolvedRun resolved(Settings more = {}) {
    Settings settings{{"model.config", "config.json"},
                      {"data.train", "data/train.bin"},
                      {"data.validation", "data/validation.bin"},
                      {"train.steps", "3"},
                      {"train.sequence", "16"},
                      {"train.global_batch", "4"},
                      {"train.micro_batch", "2"},
                      {"train.threads", "1"},
                      {"train.validation_micro_batches", "2"},
                      {"out.directory", "out"}};
    settings.insert(settings.end(), more.begin(), more.end());
    return resolve_run(env_, make_run_config(Json::object(), settings).or_throw());
  }
  TrainOutcome run(const Settings& more = {}, bool stop = false) {
    return run_resolved(resolved(more), {.stop_requested = [stop] { return stop; }});
  }
  TrainOutcome run_resolved(const ResolvedRun& run, const TrainHooks& hooks) {
    const std::unique_ptr<RunWorld> world = make_thread_run_world(run.config.layout.world(), Seconds{60});
    return train(env_, log_, run, *world, hooks);
  }
  Error error_of(const ResolvedRun& run, const TrainHooks& hooks) {
    try {
      run_resolved(run, hooks);
    } catch (const Error& error) {
      return error;
    }
    return Error(ExitCode::kDone, "", "", "no error");
  }
  // The exit code and message of a run that must not succeed.
  std::pair<ExitCode, std::string> refusal(const Settings& more = {}) {
    try {
      run(more);
    } catch (const Error& error) {
      return {error.code(), error.what()};
    }
    return {ExitCode::kDone, ""};
  }

  FakeEnv env_;
  MemoryLog log_;
};

TEST_F(Trainer, LeavesTheRunItsMetricsAndItsModel) {
  const TrainOutcome outcome = run();
  EXPECT_EQ(outcome.steps_done, 3);
  EXPECT_FALSE(outcome.interrupted);
  EXPECT_TRUE(outcome.validation_loss.has_value());
  EXPECT_EQ(Ledger::first_difference(outcome.predicted, outcome.counted), "");
  const std::string metrics = env_.read_file("out/metrics.jsonl");
  EXPECT_EQ(std::count(metrics.begin(), metrics.end(), '\n'), 3);
  EXPECT_TRUE(env_.exists("out/model/model.safetensors"));
  // The resolved file gives the same run again.
  const RunConfig again = load_run_config(env_, "out/run.toml", {{"out.directory", "again"}}).or_throw();
  run_resolved(resolve_run(env_, again), {.stop_requested = {}});
  EXPECT_EQ(env_.read_file("again/model/model.safetensors"), env_.read_file("out/model/model.safetensors"));
}

TEST_F(Trainer, ATraceShowsTheStepsAskedForOfAllRanks) {
  run({{"layout.pp", "2"}, {"layout.schedule", "1f1b"}, {"out.trace", "traces/t.json"}, {"out.trace_steps", "2-3"}});
  const telemetry::Trace trace = telemetry::parse_trace(env_.read_file("traces/t.json"), "t.json").or_throw();
  ASSERT_EQ(trace.ranks.size(), 2U);
  EXPECT_EQ(trace.about.find("schedule")->as_string(), "1f1b");
  for (const telemetry::RankTimeline& rank : trace.ranks) {
    std::vector<int> steps;
    bool communicates = false;
    for (const telemetry::Span& span : rank.spans) {
      EXPECT_GE(span.begin.count, 0);
      EXPECT_NE(span.name, "evaluate loss");  // step 3 has a validation
      if (span.name == "step") steps.push_back(span.place.step);
      communicates = communicates || span.track == "pipeline";
    }
    EXPECT_EQ(steps, (std::vector<int>{2, 3}));
    EXPECT_TRUE(communicates);
    EXPECT_EQ(rank.dropped, 0);
  }
  EXPECT_EQ(trace.ranks[1].name.substr(0, 26), "rank 1 (dp 0, tp 0, pp 1) ");
  // The trace is no part of what gives the same run again.
  EXPECT_EQ(load_run_config(env_, "out/run.toml", {}).or_throw().trace, "");
}

TEST_F(Trainer, AnInterruptedRunTracesWhatItDid) {
  run({{"out.trace", "t.json"}, {"out.trace_steps", "1-3"}}, true);
  const telemetry::Trace trace = telemetry::parse_trace(env_.read_file("t.json"), "t.json").or_throw();
  EXPECT_EQ(trace.about.find("last_step")->as_integer(), 1);
  EXPECT_EQ(refusal({{"out.directory", "other"}, {"out.trace", "t.json"}}).first, ExitCode::kUsage);
  EXPECT_EQ(refusal({{"out.directory", "other"}, {"out.trace", "out"}}).second, "out.trace = out: is a directory");
  run({{"out.directory", "late"}, {"out.trace", "none.json"}, {"out.trace_steps", "2-3"}}, true);
  EXPECT_FALSE(env_.exists("none.json"));
  EXPECT_EQ(log_.lines().back().second, "no trace: the run ended before step 2");
}

TEST_F(Trainer, AnExistingRunIsKeptUnlessAsked) {
  const Settings unsaved{{"checkpoint.interval", "none"}};
  run(unsaved);
  const std::string metrics = env_.read_file("out/metrics.jsonl");
  for (const Settings& settings : {unsaved, Settings{}}) {  // there is no checkpoint to go on from either
    const auto [code, message] = refusal(settings);
    EXPECT_EQ(code, ExitCode::kUsage);
    EXPECT_NE(message.find("out.directory"), std::string::npos);
    EXPECT_EQ(env_.read_file("out/metrics.jsonl"), metrics);
  }
  env_.put_file("out/model/model.safetensors.index.json", "{}");  // of an older, sharded model
  EXPECT_EQ(run({{"out.overwrite", "true"}}).steps_done, 3);
  EXPECT_FALSE(env_.exists("out/model/model.safetensors.index.json"));
  EXPECT_NE(env_.read_file("out/run.toml").find("overwrite = false"), std::string::npos);
}

TEST_F(Trainer, TheSameRunAgainGoesOnFromItsCheckpoint) {
  run({{"out.directory", "whole"}});
  run({}, true);  // stopped after one step
  const std::string first = env_.read_file("out/metrics.jsonl");
  const TrainOutcome outcome = run();
  EXPECT_EQ(outcome.first_step, 2);
  EXPECT_EQ(outcome.steps_done, 3);
  EXPECT_EQ(Ledger::first_difference(outcome.predicted, outcome.counted), "");
  EXPECT_EQ(env_.read_file("out/model/model.safetensors"), env_.read_file("whole/model/model.safetensors"));
  EXPECT_TRUE(env_.read_file("out/metrics.jsonl").starts_with(first));
  EXPECT_NE(env_.read_file("out/metrics.jsonl").find("\"incarnation\":2"), std::string::npos);
  const std::string all = env_.read_file("out/metrics.jsonl");
  for (const char* used :
       {"\"first_sample\":0,\"samples\":4", "\"first_sample\":4,\"samples\":4", "\"first_sample\":8,\"samples\":4"}) {
    EXPECT_NE(all.find(used), std::string::npos) << used;
  }
  EXPECT_FALSE(run().last.has_value());  // nothing is left to do
  EXPECT_EQ(env_.read_file("out/metrics.jsonl"), all);
}

TEST_F(Trainer, AFailedStartTouchesNothing) {
  run();
  const std::string metrics = env_.read_file("out/metrics.jsonl");
  for (const Settings& wrong : std::vector<Settings>{{{"model.weights", "nowhere"}},
                                                     {{"model.weights", "config.json"}},
                                                     {{"data.train", "nowhere.bin"}},
                                                     {{"train.validation_micro_batches", "1000"}}}) {
    Settings settings = wrong;
    settings.emplace_back("out.overwrite", "true");
    EXPECT_NE(refusal(settings).first, ExitCode::kDone) << wrong[0].second;
    EXPECT_EQ(env_.read_file("out/metrics.jsonl"), metrics) << wrong[0].second;
  }
}

TEST_F(Trainer, TwoRunsDoNotShareADirectory) {
  env_.make_directories("out");
  const std::unique_ptr<FileLock> other = env_.try_lock("out/.lock");
  EXPECT_NE(refusal({{"out.overwrite", "true"}}).second.find("another run is writing there"), std::string::npos);
}

TEST_F(Trainer, EachStartIsAnIncarnationOfItsDirectorysLease) {
  run({{"checkpoint.interval", "1"}}, true);
  EXPECT_EQ(checkpoint::read_lease(env_, "out")->incarnation, 1);
  run({{"checkpoint.interval", "1"}}, true);
  const checkpoint::LeaseRecord lease = checkpoint::read_lease(env_, "out").value();
  EXPECT_EQ(lease.incarnation, 2);
  EXPECT_EQ(lease.process, 0);  // given up
  EXPECT_GT(lease.renewals, 0);
  // A run that begins anew is still another than those before.
  run({{"out.overwrite", "true"}});
  EXPECT_EQ(checkpoint::read_lease(env_, "out")->incarnation, 3);
  EXPECT_NE(env_.read_file("out/metrics.jsonl").find("\"incarnation\":3"), std::string::npos);
  // As is one of a directory from before leases.
  for (const char* name : {"out/.lease", "out/.renewal"}) env_.remove_file(name);
  run({{"train.steps", "4"}, {"checkpoint.accept", "train.steps"}});
  EXPECT_EQ(checkpoint::read_lease(env_, "out")->incarnation, 4);
}

// The supervisor has the lease, and the run its incarnation.
TEST_F(Trainer, ASupervisedRunIsOfTheIncarnationThatItWasGiven) {
  const auto lease = checkpoint::Lease::claim(env_, "out");
  TrainHooks hooks{.stop_requested = [] { return false; }};
  hooks.incarnation = lease->begin_incarnation(6);
  run_resolved(resolved({{"layout.dp", "2"}}), hooks);
  const checkpoint::Store store(env_, "out/checkpoints");
  EXPECT_EQ(checkpoint::Reader::open(env_, store.path_of(3)).or_throw().manifest().progress.incarnation, 7);
  EXPECT_NE(env_.read_file("out/metrics.jsonl").find("\"incarnation\":7"), std::string::npos);
  EXPECT_EQ(lease->incarnation(), 7);
  lease->renew();  // still this one's
  hooks.incarnation = 6;
  const Error error = error_of(resolved({{"train.steps", "4"}, {"checkpoint.accept", "train.steps"}}), hooks);
  EXPECT_EQ(error.code(), ExitCode::kRankLost) << error.what();
  EXPECT_EQ(store.steps(), std::vector<std::int64_t>{3});
}

// It does not know yet that another start has begun, and saves.
TEST_F(Trainer, AZombieCommitsNothing) {
  env_.set_tick(Seconds{1e-6});  // it looks once a second, and has none
  const auto lease = checkpoint::Lease::claim(env_, "out");
  TrainHooks hooks{.stop_requested = {}};
  hooks.incarnation = lease->begin_incarnation();
  int steps = 0;
  hooks.stop_requested = [&] {
    if (++steps == 2) lease->begin_incarnation();
    return false;
  };
  const Settings settings{{"layout.dp", "2"}, {"checkpoint.interval", "1"}, {"checkpoint.async", "false"}};
  const Error error = error_of(resolved(settings), hooks);
  EXPECT_EQ(error.code(), ExitCode::kRankLost);
  const std::string said = error.what();
  EXPECT_NE(said.find("save step 2: checkpoint: write as incarnation 1 of out: the run has incarnation 2 now: host "),
            std::string::npos)
      << said;
  EXPECT_EQ(env_.list_directory("out/checkpoints"), std::vector<std::string>{"step-00000001"});
}

TEST_F(Trainer, AZombieEndsWithoutASave) {
  const auto lease = checkpoint::Lease::claim(env_, "out");
  TrainHooks hooks{.stop_requested = {}};
  hooks.incarnation = lease->begin_incarnation();
  hooks.stop_requested = [&] {
    lease->begin_incarnation();
    return false;
  };
  EXPECT_EQ(error_of(resolved({{"train.steps", "200"}, {"checkpoint.interval", "none"}}), hooks).code(),
            ExitCode::kRankLost);
}

TEST_F(Trainer, ARunWhoseLeaseIsTakenEnds) {
  TrainHooks hooks{.stop_requested = {}};
  hooks.stop_requested = [&] {
    const std::string text = env_.read_file("out/.lease");
    env_.put_file("out/.lease", text.find("\"host\":\"host\"") == 1 ? "{\"host\":\"else" + text.substr(13) : text);
    return false;
  };
  const Error error = error_of(resolved({{"train.steps", "200"}, {"checkpoint.interval", "none"}}), hooks);
  EXPECT_EQ(error.code(), ExitCode::kStorage);
  EXPECT_NE(std::string(error.what()).find("hold the lease of out: it was taken by host else"), std::string::npos)
      << error.what();
}

TEST_F(Trainer, WhatDoesNotFitIsRefusedBeforeItIsAllocated) {
  env_.set_available_memory(Bytes{100'000});
  const auto [code, message] = refusal();
  EXPECT_EQ(code, ExitCode::kDoesNotFit);
  EXPECT_NE(message.find("100.00 KB left"), std::string::npos) << message;
  EXPECT_FALSE(env_.exists("out/run.toml"));
}

TEST_F(Trainer, ATokenFileMustBeWhatDataJsonSays) {
  std::string tokens = env_.read_file("data/train.bin");
  env_.put_file("data/train.bin", tokens.substr(0, tokens.size() - 200));
  EXPECT_NE(refusal().second.find("truncated"), std::string::npos);
}

TEST_F(Trainer, AStopEndsAfterTheStepWithTheModelSaved) {
  const TrainOutcome outcome = run({}, true);
  EXPECT_TRUE(outcome.interrupted);
  EXPECT_EQ(outcome.steps_done, 1);
  EXPECT_TRUE(env_.exists("out/model/model.safetensors"));
}

TEST_F(Trainer, ADivergedRunExportsNothing) {
  const Settings wild{{"optimizer.learning_rate", "1e38"}, {"optimizer.clip_norm", "0"}};
  EXPECT_EQ(refusal(wild).first, ExitCode::kDiverged);
  Settings one_step = wild;
  one_step.insert(one_step.end(), {{"train.steps", "1"}, {"data.validation", ""}});
  env_.remove_file("out/run.toml");
  env_.remove_file("out/metrics.jsonl");
  EXPECT_EQ(refusal(one_step).first, ExitCode::kDiverged);
  EXPECT_FALSE(env_.exists("out/model/model.safetensors"));
}

// The hex losses and norms of a run's steps.
std::vector<std::string> curve_of(FakeEnv& env) {
  std::vector<std::string> lines;
  const std::string metrics = env.read_file("out/metrics.jsonl");
  for (std::size_t begin = 0; begin < metrics.size(); begin = metrics.find('\n', begin) + 1) {
    const Json line = parse_json(metrics.substr(begin, metrics.find('\n', begin) - begin), "line").or_throw();
    lines.push_back(line.find("loss_hex")->as_string() + " " + line.find("grad_norm_hex")->as_string());
  }
  return lines;
}

TEST_F(Trainer, RanksAsThreadsTrainTheSameModel) {
  run();
  const std::vector<std::string> one = curve_of(env_);
  const std::string model = env_.read_file("out/model/model.safetensors");
  const double loss =
      parse_json(env_.read_file("out/metrics.jsonl").substr(0, env_.read_file("out/metrics.jsonl").find('\n')), "line")
          .or_throw()
          .find("loss")
          ->as_number();
  const TrainOutcome pipeline = run({{"layout.pp", "2"}, {"out.overwrite", "true"}});
  EXPECT_EQ(curve_of(env_), one);  // a pipeline keeps every bit
  EXPECT_EQ(env_.read_file("out/model/model.safetensors"), model);
  EXPECT_EQ(Ledger::first_difference(pipeline.predicted, pipeline.counted), "");
  for (const char* degree : {"layout.tp", "layout.dp"}) {
    const TrainOutcome outcome = run({{degree, "2"}, {"out.overwrite", "true"}});
    EXPECT_EQ(outcome.steps_done, 3);
    EXPECT_NEAR(outcome.last->loss, loss, 1.0) << degree;
    EXPECT_EQ(env_.read_file("out/model/model.safetensors").size(), model.size());
  }
}

TEST_F(Trainer, SequenceParallelRanksTrainAndValidate) {
  const double alone = *run().validation_loss;
  const TrainOutcome outcome =
      run({{"layout.tp", "2"}, {"layout.sequence_parallel", "true"}, {"out.overwrite", "true"}});
  EXPECT_NEAR(*outcome.validation_loss, alone, 1e-4);
  EXPECT_EQ(Ledger::first_difference(outcome.predicted, outcome.counted), "");
}

// A common letter bears no loss: other losses than with it, the same ones on any layout.
TEST_F(Trainer, TokensThatAreIgnoredBearNoLoss) {
  const TrainOutcome all = run();
  const Settings ignore{{"data.ignore", fmt::format("{}", static_cast<int>('o'))}, {"out.overwrite", "true"}};
  const TrainOutcome some = run(ignore);
  EXPECT_NE(some.last->loss, all.last->loss);
  EXPECT_NE(*some.validation_loss, *all.validation_loss);
  EXPECT_EQ(some.last->tokens, all.last->tokens);  // processed
  EXPECT_NE(env_.read_file("out/run.toml").find("ignore = 111"), std::string::npos);
  const std::vector<std::string> one = curve_of(env_);
  for (const char* degree : {"layout.dp", "layout.tp", "layout.pp"}) {
    Settings settings = ignore;
    settings.emplace_back(degree, "2");
    const TrainOutcome outcome = run(settings);
    EXPECT_NEAR(outcome.last->loss, some.last->loss, 1e-4) << degree;
    EXPECT_NEAR(*outcome.validation_loss, *some.validation_loss, 1e-4) << degree;
    EXPECT_TRUE(degree != std::string("layout.pp") || curve_of(env_) == one);
  }
}

TEST_F(Trainer, ATextWithoutATokenThatBearsALossIsRefused) {
  env_.put_file("flat.txt", std::string(4000, 'a'));
  data::tokenize_text(env_, {.text_path = "flat.txt", .out_directory = "flat", .progress = {}}).or_throw();
  const std::string a = fmt::format("{}", static_cast<int>('a'));
  for (const char* dp : {"1", "2"}) {
    const auto [code, message] =
        refusal({{"data.train", "flat/train.bin"}, {"data.ignore", a}, {"layout.dp", dp}, {"out.overwrite", "true"}});
    EXPECT_EQ(code, ExitCode::kUsage) << message;
    EXPECT_NE(message.find("step 1: no token of the global batch bears a loss"), std::string::npos) << message;
  }
  const auto [code, message] =
      refusal({{"data.validation", "flat/validation.bin"}, {"data.ignore", a}, {"out.overwrite", "true"}});
  EXPECT_EQ(code, ExitCode::kUsage) << message;
  EXPECT_NE(message.find("no validation token bears a loss"), std::string::npos) << message;
}

TEST_F(Trainer, AnIgnoredTokenIsOfTheVocabulary) {
  EXPECT_EQ(refusal({{"data.ignore", "256"}}).second,
            "data.ignore = 256: the model's vocabulary has 256 tokens; "
            "nearest legal: 255");
  EXPECT_EQ(refusal({{"data.ignore", "255"}, {"train.steps", "1"}}).first, ExitCode::kDone);
}

TEST_F(Trainer, ReplicasAreSummedAsAsked) {
  const auto said = [&] {
    std::int64_t lines = 0;
    for (const auto& [level, line] : log_.lines()) lines += line.find("outside the promise") != std::string::npos;
    return lines;
  };
  const Settings more{{"train.global_batch", "6"}, {"train.micro_batch", "1"}, {"out.overwrite", "true"}};
  const auto settings = [&](const char* dp, const char* algorithm) {
    Settings all = more;
    all.insert(all.end(), {{"layout.dp", dp}, {"layout.all_reduce", algorithm}});
    return all;
  };
  for (const char* dp : {"2", "3"}) {
    const double loss = run(settings(dp, "ordered")).last->loss;
    const std::vector<std::string> ordered = curve_of(env_);
    EXPECT_EQ(said(), 0);
    for (const char* algorithm : {"ring", "recursive-doubling", "hierarchical"}) {
      const TrainOutcome outcome = run(settings(dp, algorithm));
      for (const RankReport& rank : outcome.ranks) EXPECT_EQ(rank.ledger_fault + rank.traffic_fault, "");
      EXPECT_GT(outcome.counted.peak(MemoryClass::kCommunicationBuffers).count, 0);
      EXPECT_NEAR(outcome.last->loss, loss, 2e-6 * loss);
      EXPECT_TRUE(dp != std::string("2") || curve_of(env_) == ordered) << algorithm;
    }
  }
  EXPECT_EQ(said(), 3);  // once a run of three replicas
}

TEST_F(Trainer, ThreadsHaveNoCommunicationLibrary) {
  EXPECT_EQ(refusal({{"layout.dp", "2"}, {"layout.all_reduce", "library"}}).second,
            "layout.all_reduce = library: ranks that are threads of one process have no communication library; nearest "
            "legal: ordered, or ranks that mpirun or srun starts");
}

TEST_F(Trainer, APlanIsOfTheBackendThatRunsIt) {
  const RunConfig config = resolved({{"layout.dp", "2"}}).config;
  const ResolvedRun messages = resolve_run(env_, config, {.backend = plan::Backend::kMessages});
  EXPECT_GT(parallel::predicted_ledger(messages.plan).peak(MemoryClass::kCommunicationBuffers).count, 0);
  EXPECT_THROW(run_resolved(messages, {}), InternalError);
}

TEST_F(Trainer, AStopOfSeveralRanksEndsAllOfThem) {
  const TrainOutcome outcome = run({{"layout.dp", "2"}}, true);
  EXPECT_TRUE(outcome.interrupted);
  EXPECT_EQ(outcome.steps_done, 1);
  EXPECT_TRUE(env_.exists("out/model/model.safetensors"));
}

TEST_F(Trainer, SeveralRanksThatDivergeEndWithTheError) {
  const auto [code, message] =
      refusal({{"layout.pp", "2"}, {"optimizer.learning_rate", "1e38"}, {"optimizer.clip_norm", "0"}});
  EXPECT_EQ(code, ExitCode::kDiverged) << message;
}

TEST_F(Trainer, ARankThatMayNotHoldWhatItNeedsEndsWithItsCode) {
  const auto [code, message] = refusal({{"train.memory_limit", "10kB"}});
  EXPECT_EQ(code, ExitCode::kDoesNotFit);
  EXPECT_NE(message.find("10"), std::string::npos) << message;
}

TEST_F(Trainer, AnIllegalDegreeIsRefusedByName) {
  EXPECT_NE(refusal({{"layout.tp", "3"}}).second.find("layout.tp = 3"), std::string::npos);
}

TEST_F(Trainer, ARunThatAnotherHasFinishedHasItsCheckpoint) {
  run({{"checkpoint.interval", "2"}});
  const TrainOutcome outcome = run({{"checkpoint.resume", "out"}, {"out.directory", "again"}, {"layout.dp", "2"}});
  EXPECT_EQ(outcome.steps_done, 3);
  EXPECT_FALSE(outcome.last.has_value());
  const checkpoint::Reader saved = checkpoint::Reader::open(env_, "out/checkpoints/step-00000003").or_throw();
  const checkpoint::Reader own = checkpoint::Reader::open(env_, "again/checkpoints/step-00000003").or_throw();
  EXPECT_EQ(own.manifest().layout, "dp 2 x tp 1 x pp 1, zero 0");
  for (const checkpoint::TensorDifference& tensor : checkpoint::difference(saved, own)) {
    EXPECT_EQ(tensor.differing, 0) << tensor.name;
  }
  EXPECT_EQ(env_.read_file("again/model/model.safetensors"), env_.read_file("out/model/model.safetensors"));
}

// As where a run was killed once its last checkpoint was there, before it removed another.
TEST_F(Trainer, WhatAnEarlierStartDidNotRemoveIsRemovedWithNothingLeftToTrain) {
  run({{"checkpoint.interval", "1"}, {"checkpoint.keep_last", "3"}});
  const checkpoint::Store store(env_, "out/checkpoints");
  ASSERT_EQ(store.steps(), (std::vector<std::int64_t>{1, 2, 3}));
  const TrainOutcome outcome = run({{"checkpoint.interval", "1"}, {"checkpoint.keep_last", "2"}});
  EXPECT_FALSE(outcome.last.has_value());
  EXPECT_EQ(store.steps(), (std::vector<std::int64_t>{2, 3}));
}

}  // namespace
}  // namespace trireme::train
