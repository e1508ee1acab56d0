// A checkpoint of which a byte, a file or all is not what was written: it is named, passed over and kept; what is whole
// stays as it is.

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/exit_code.h"
#include "base/random.h"
#include "checkpoint/checksum.h"
#include "checkpoint/reader.h"
#include "checkpoint/store.h"
#include "engine/train/load_state.h"
#include "engine/train/rank_trainer.h"
#include "engine/train/run_checks.h"
#include "engine/train/run_directory.h"
#include "engine/train/test_small_run.h"

namespace trireme::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

std::string manifest_of(std::int64_t step) { return join_path(checkpoint_path(step), checkpoint::kManifestFile); }
std::string shard_of(std::int64_t step, int part) {
  return join_path(checkpoint_path(step), checkpoint::shard_name(part));
}

// All files below `from` are, with the same bytes, below `to`.
void expect_same(const Files& before, const Files& after, const std::string& from, const std::string& to) {
  int compared = 0;
  for (const auto& [path, content] : before) {
    if (!path.starts_with(from + "/")) continue;
    const auto found = after.find(to + path.substr(from.size()));
    ASSERT_NE(found, after.end()) << path;
    EXPECT_TRUE(found->second == content) << path;
    ++compared;
  }
  EXPECT_GT(compared, 0) << from;
}

class DamagedCheckpoint : public ::testing::Test {
 protected:
  DamagedCheckpoint() {
    SmallRun run;
    EXPECT_EQ(run.run(kTwoReplicas).error, "");
    curve_ = run.curve();
    whole_ = run.files();
    EXPECT_EQ(curve_.size(), static_cast<std::size_t>(SmallRun::kSteps));
  }

  // A start of the run goes on from step 2 to the end of the unbroken run. Step 4's checkpoint is damaged, is named as
  // `named` says, and is kept as it is.
  void expect_passed_over(SmallRun& run, const std::string& named, const Settings& settings = kTwoReplicas) {
    const Files before = run.files();
    const SmallRun::Outcome outcome = run.run(settings);
    EXPECT_EQ(outcome.error, "");
    EXPECT_EQ(outcome.first_step, 3);
    EXPECT_EQ(run.curve(), curve_);
    EXPECT_THAT(run.logged(),
                AllOf(HasSubstr("warning: " + checkpoint_path(4) + " is damaged and passed over: " + named),
                      HasSubstr("goes on from step 2 of " + checkpoint_path(2)),
                      HasSubstr("a checkpoint beyond step 2 is kept aside as " + checkpoint_path(4) + ".aside")));
    const Files after = run.files();
    expect_same(before, after, checkpoint_path(2), checkpoint_path(2));
    expect_same(before, after, checkpoint_path(4), checkpoint_path(4) + ".aside");
    EXPECT_THAT(checkpoint::damages_of(run.env(), checkpoint_path(2)), IsEmpty());
    EXPECT_THAT(checkpoint::damages_of(run.env(), checkpoint_path(4)), IsEmpty());
  }

  // No start of the run is possible; `named` is said, and nothing changes but the lock, which is there already.
  void expect_refused(SmallRun& run, ExitCode code, const ::testing::Matcher<const std::string&>& named,
                      const Settings& settings = kTwoReplicas) {
    const Files before = run.files();
    const SmallRun::Outcome outcome = run.run(settings);
    EXPECT_EQ(outcome.code, code) << outcome.error;
    EXPECT_THAT(outcome.error, named);
    const Files after = run.files();
    for (const auto& [path, content] : before) {
      if (base_name(path) == ".lease") continue;  // this start had an incarnation
      const auto found = after.find(path);
      EXPECT_TRUE(found != after.end() && found->second == content) << path << " changed: " << outcome.error;
    }
    EXPECT_EQ(after.size(), before.size());
  }

  void remove_tree(SmallRun& run, const std::string& path) {
    for (const std::string& name : run.env().list_directory(path)) run.env().remove_file(join_path(path, name));
    run.env().remove_directory(path);
  }

  std::size_t draw(std::size_t count) { return random_bits({20, 1}, drawn_++) % count; }
  // One bit of a byte of a file; gives the byte.
  std::size_t flip(SmallRun& run, const std::string& path, std::size_t byte) {
    damage(run.env(), path, byte, 1U << draw(8));
    return byte;
  }
  std::size_t flip_any(SmallRun& run, const std::string& path) {
    return flip(run, path, draw(run.env().content(path).size()));
  }

  std::vector<std::string> curve_;
  Files whole_;  // the disk after the run
  std::uint64_t drawn_ = 0;
};

TEST_F(DamagedCheckpoint, AnyByteOfAManifestIsNoticed) {
  SmallRun run(whole_);
  const std::string path = manifest_of(4);
  const std::string content = run.env().content(path);
  ASSERT_GT(content.size(), 1000U);
  for (std::size_t byte = 0; byte < content.size(); ++byte) {
    flip(run, path, byte);
    const auto reader = checkpoint::Reader::open(run.env(), checkpoint_path(4));
    ASSERT_FALSE(reader.ok()) << byte;
    EXPECT_THAT(reader.failure().sentence(), StartsWith(path + ": ")) << byte;
    EXPECT_EQ(reader.failure().code, ExitCode::kStorage) << byte;
    run.env().put_file(path, content);
  }
  EXPECT_TRUE(checkpoint::Reader::open(run.env(), checkpoint_path(4)).ok());
}

// The ranks of a run that is about to load.
class Ranks {
 public:
  Ranks(SmallRun& run, const Settings& layout)
      : run_(run.resolved(layout)),
        world_(make_thread_run_world(run_.config.layout.world(), Seconds{60})),
        tokens_(open_training(run.env(), run_)),
        env_(run.env()) {
    for (int rank = 0; rank < world_->ranks(); ++rank) {
      ranks_.push_back(std::make_unique<RankTrainer>(env_, log_, run_, rank, kernels::make_cpu_device(1),
                                                     world_->factory(rank), tokens_, nullptr));
    }
  }
  // What the ranks find wrong with it, one after the other; "": nothing.
  std::string damage_found(const std::string& path) {
    const auto reader = checkpoint::Reader::open(env_, path);
    if (!reader) return reader.failure().code == ExitCode::kStorage ? reader.failure().sentence() : "";
    for (const auto& rank : ranks_) {
      try {
        load_state(*reader, rank->rank().device(), rank->rank().plan(), rank->rank().executor().state());
      } catch (const Error& error) {
        return error.code() == ExitCode::kStorage ? error.what() : "";
      }
    }
    return "";
  }

 private:
  ResolvedRun run_;
  std::unique_ptr<RunWorld> world_;
  data::Sampler tokens_;
  FakeEnv& env_;
  MemoryLog log_;
  std::vector<std::unique_ptr<RankTrainer>> ranks_;
};

TEST_F(DamagedCheckpoint, AnyByteOfAShardIsNoticedByALayoutThatLoadsIt) {
  SmallRun run(whole_);
  const auto reader = checkpoint::Reader::open(run.env(), checkpoint_path(4)).or_throw();
  for (const Settings& layout :
       {Settings{}, Settings{{"layout.tp", "2"}}, Settings{{"layout.pp", "2"}}, Settings{{"layout.dp", "4"}}}) {
    Ranks ranks(run, layout);
    ASSERT_EQ(ranks.damage_found(checkpoint_path(4)), "");
    for (int part = 0; part < 2; ++part) {
      const std::string path = shard_of(4, part);
      const std::string content = run.env().content(path);
      std::size_t header = 8;
      for (std::size_t i = 0; i < 8; ++i)
        header += static_cast<std::size_t>(static_cast<unsigned char>(content[i])) << (8 * i);
      ASSERT_LT(header, content.size());
      for (int i = 0; i < 500; ++i) {
        std::size_t byte = i < 8 ? static_cast<std::size_t>(i) : draw(i < 100 ? header : content.size());
        if (i == 499) byte = content.size() - 1;
        flip(run, path, byte);
        const std::string found = ranks.damage_found(checkpoint_path(4));
        EXPECT_THAT(found, AllOf(HasSubstr(path + ": "), HasSubstr("expected"), HasSubstr("found"))) << byte;
        EXPECT_THAT(found, HasSubstr(byte < header ? "header" : "slice ")) << byte;
        run.env().put_file(path, content);
      }
    }
    EXPECT_EQ(ranks.damage_found(checkpoint_path(4)), "");
  }
}

TEST_F(DamagedCheckpoint, ARunNamesItPassesOverItAndGoesOnFromTheOneBefore) {
  for (int i = 0; i < 60; ++i) {
    SmallRun run(whole_);
    const std::string path = i % 3 == 0 ? manifest_of(4) : shard_of(4, i % 3 - 1);
    SCOPED_TRACE(path + " " + std::to_string(flip_any(run, path)));
    expect_passed_over(run, i % 3 == 0 ? path + ": " : "");
    EXPECT_THAT(run.logged(), HasSubstr(path + ": "));
  }
}

// One rank and a pipeline add in the same order, so they go on the same way.
TEST_F(DamagedCheckpoint, OtherLayoutsPassOverItToo) {
  std::vector<std::vector<std::string>> curves;
  for (const Settings& layout : {Settings{}, Settings{{"layout.pp", "2"}}}) {
    SmallRun run(whole_);
    damage(run.env(), shard_of(4, 1), run.env().content(shard_of(4, 1)).size() - 5);
    const SmallRun::Outcome outcome = run.run(layout);
    EXPECT_EQ(outcome.error, "");
    EXPECT_EQ(outcome.first_step, 3);
    curves.push_back(run.curve());
    for (const std::size_t step : {0, 1}) EXPECT_EQ(curves.back().at(step), curve_[step]);
  }
  EXPECT_EQ(curves[0], curves[1]);
}

TEST_F(DamagedCheckpoint, WithoutAWholeOneNothingIsTrainedAndNothingChanged) {
  for (int i = 0; i < 9; ++i) {
    SmallRun run(whole_);
    const bool alone = i % 2 == 0;
    const std::string newer = i % 3 == 0 ? manifest_of(4) : shard_of(4, i % 3 - 1);
    const std::string older = i % 3 == 1 ? manifest_of(2) : shard_of(2, i % 3 / 2);
    flip_any(run, newer);
    if (alone) {
      remove_tree(run, checkpoint_path(2));
      expect_refused(run, ExitCode::kStorage,
                     AllOf(HasSubstr("none of 1 checkpoint is whole"), HasSubstr(newer + ": "),
                           HasSubstr("restore one from a copy, or begin anew with --overwrite")));
    } else {
      flip_any(run, older);
      expect_refused(
          run, ExitCode::kStorage,
          AllOf(HasSubstr("none of 2 checkpoints is whole"), HasSubstr(newer + ": "), HasSubstr(older + ": "),
                HasSubstr("restore one from a copy, or begin anew with --overwrite")));
    }
    EXPECT_EQ(run.run({{"layout.dp", "2"}, {"out.overwrite", "true"}}).error, "");  // as the hint says
    EXPECT_EQ(run.curve(), curve_);
  }
}

// One thing that can have happened to step 4's files, and what is said of it.
struct Misfortune {
  const char* name;
  std::function<void(FakeEnv&)> strikes;
  std::string said;
};

std::vector<Misfortune> misfortunes() {
  const std::string manifest = manifest_of(4), shard = shard_of(4, 1);
  const auto resize = [shard](std::int64_t by) {
    return [shard, by](FakeEnv& env) {
      std::string content = env.content(shard);
      content.resize(content.size() + static_cast<std::size_t>(by), 'x');
      env.put_file(shard, content);
    };
  };
  return {
      {"shard missing", [=](FakeEnv& env) { env.remove_file(shard); }, shard + ": missing; expected a file of "},
      {"shard cut", resize(-1), shard + ": size: expected "},
      {"shard longer", resize(1), shard + ": size: expected "},
      {"shard empty", [=](FakeEnv& env) { env.put_file(shard, ""); }, shard + ": size: expected "},
      {"shard a directory",
       [=](FakeEnv& env) {
         env.remove_file(shard);
         env.make_directories(shard);
       },
       "files: open " + shard + ": "},
      {"shards exchanged",
       [=](FakeEnv& env) {
         const std::string one = env.content(shard_of(4, 0)), other = env.content(shard);
         env.put_file(shard_of(4, 0), other);
         env.put_file(shard, one);
       },
       shard_of(4, 0) + ": "},
      {"shard of another step", [=](FakeEnv& env) { env.put_file(shard, env.content(shard_of(2, 1))); },
       "checkpoint: read: " + shard + ": slice "},
      {"manifest missing", [=](FakeEnv& env) { env.remove_file(manifest); },
       manifest + ": missing: without it the checkpoint is not complete"},
      {"manifest empty", [=](FakeEnv& env) { env.put_file(manifest, ""); },
       manifest + ": does not end with the line of its checksum: cut short, changed, or no manifest"},
      {"manifest cut", [=](FakeEnv& env) { env.put_file(manifest, env.content(manifest).substr(0, 700)); },
       manifest + ": does not end with the line of its checksum: cut short, changed, or no manifest"},
      {"manifest a directory",
       [=](FakeEnv& env) {
         env.remove_file(manifest);
         env.make_directories(manifest);
       },
       "files: open " + manifest + ": "},
  };
}

TEST_F(DamagedCheckpoint, AMisfortuneIsNamedAndPassedOver) {
  for (const Misfortune& misfortune : misfortunes()) {
    SCOPED_TRACE(misfortune.name);
    SmallRun run(whole_);
    misfortune.strikes(run.env());
    const Files before = run.files(checkpoint_path(2));
    const SmallRun::Outcome outcome = run.run(kTwoReplicas);
    EXPECT_EQ(outcome.error, "");
    EXPECT_EQ(outcome.first_step, 3);
    EXPECT_EQ(run.curve(), curve_);
    EXPECT_THAT(run.logged(),
                HasSubstr("warning: " + checkpoint_path(4) + " is damaged and passed over: " + misfortune.said));
    EXPECT_EQ(run.files(checkpoint_path(2)), before);
    EXPECT_THAT(checkpoint::damages_of(run.env(), checkpoint_path(4)), IsEmpty());
    EXPECT_TRUE(run.env().is_directory(checkpoint_path(4) + ".aside"));
  }
}

TEST_F(DamagedCheckpoint, AMisfortuneOfTheOnlyOneIsNamedAndNothingChanged) {
  for (const Misfortune& misfortune : misfortunes()) {
    SCOPED_TRACE(misfortune.name);
    SmallRun run(whole_);
    misfortune.strikes(run.env());
    remove_tree(run, checkpoint_path(2));
    expect_refused(run, ExitCode::kStorage,
                   AllOf(HasSubstr("none of 1 checkpoint is whole: "), HasSubstr(misfortune.said)));
  }
}

// A version that this program does not know is not damage of a disk, but it cannot be loaded either.
TEST_F(DamagedCheckpoint, AnotherVersionIsNamed) {
  SmallRun run(whole_);
  std::string text = run.env().content(manifest_of(4));
  const std::string version = "\"version\": 1";
  ASSERT_NE(text.find(version), std::string::npos);
  text.replace(text.find(version), version.size(), "\"version\": 3");
  const std::size_t end = text.rfind("  \"");
  const std::string checksum = checkpoint::checksum_of(std::string_view(text).substr(0, end));
  const std::size_t digits = text.find_first_of("0123456789abcdef", text.find(": \"", end));
  text.replace(digits, checksum.size(), checksum);
  run.env().put_file(manifest_of(4), text);
  expect_passed_over(run, manifest_of(4) + ": version 3");
}

// Of another model: the whole run is refused, even where an older one of the right model is there.
TEST_F(DamagedCheckpoint, ACheckpointOfAnotherModelIsRefused) {
  SmallRun other(whole_);
  Json config = parse_json(other.env().content("config.json"), "config.json").or_throw();
  config["intermediate_size"] = 64;
  other.env().put_file("config.json", config.dump());
  ASSERT_EQ(other.run({{"layout.dp", "2"}, {"out.overwrite", "true"}}).error, "");
  SmallRun run(whole_);
  run.env().put_file(manifest_of(4), other.env().content(manifest_of(4)));
  expect_refused(run, ExitCode::kUsage,
                 AllOf(HasSubstr("checkpoint = " + checkpoint_path(4) +
                                 ": is of another model: its intermediate_size is "
                                 "64, this model's is 32"),
                       HasSubstr("the model.config that it was trained with")));
}

TEST_F(DamagedCheckpoint, WhatStandsInACheckpointsPlaceIsNamedAndStays) {
  for (const char* name : {"", "export.bin"}) {
    SmallRun run(whole_);
    remove_tree(run, checkpoint_path(4));
    const std::string file = *name == '\0' ? checkpoint_path(4) : join_path(checkpoint_path(4), name);
    run.env().put_file(file, "somebody's");
    const SmallRun::Outcome outcome = run.run(kTwoReplicas);
    EXPECT_EQ(outcome.error, "");
    EXPECT_EQ(outcome.first_step, 3);
    EXPECT_EQ(run.curve(), curve_);
    const std::string left = checkpoint_path(4) + ".left";
    EXPECT_THAT(run.logged(), HasSubstr("warning: " + left + " holds what is not this run's to remove, and stays"));
    EXPECT_EQ(run.env().content(*name == '\0' ? left : join_path(left, name)), "somebody's");
    for (const int step : {2, 4}) EXPECT_THAT(checkpoint::damages_of(run.env(), checkpoint_path(step)), IsEmpty());
  }
}

// Renamed, or copied: the run does not go on from another step than it says.
TEST_F(DamagedCheckpoint, OneOfAnotherStepThanItsNameIsPassedOver) {
  SmallRun run(whole_);
  const std::string copy = checkpoint_path(50);
  for (const std::string& name : run.env().list_directory(checkpoint_path(2))) {
    run.env().put_file(join_path(copy, name), run.env().content(join_path(checkpoint_path(2), name)));
  }
  const SmallRun::Outcome outcome = run.run(kTwoReplicas);
  EXPECT_EQ(outcome.error, "");
  EXPECT_THAT(run.logged(),
              AllOf(HasSubstr("warning: " + copy + " is damaged and passed over: " + copy +
                              ": holds the checkpoint of step 2, and its name says step 50"),
                    HasSubstr("goes on from step 4 of " + checkpoint_path(4)), HasSubstr(copy + ".aside")));
  EXPECT_EQ(run.curve(), curve_);
}

// A directory that somebody has made where no save was ever completed.
TEST_F(DamagedCheckpoint, AForeignDirectoryDoesNotKeepARunFromItsBeginning) {
  for (const char* name : {"step-00000099/", "step-00000099/part-00000.safetensors", "step-xyz/manifest.json"}) {
    SmallRun run;
    run.env().put_file(unsaved_mark_of("out"), "");
    const std::string path = join_path(checkpoints_of("out"), name);
    path.back() == '/' ? run.env().make_directories(path) : run.env().put_file(path, "somebody's");
    EXPECT_EQ(run.run(kTwoReplicas).error, "") << name;
    EXPECT_EQ(run.curve(), curve_);
  }
}

TEST_F(DamagedCheckpoint, ARunWhoseCheckpointsAreGoneDoesNotBeginAnew) {
  SmallRun run(whole_);
  for (const int step : {2, 4}) remove_tree(run, checkpoint_path(step));
  const auto refused = AllOf(HasSubstr("out.directory = out: holds run.toml already, and no checkpoint to go on from"),
                             HasSubstr("another --out, or --overwrite"));
  expect_refused(run, ExitCode::kUsage, refused);
  run.env().remove_directory("out/checkpoints");
  expect_refused(run, ExitCode::kUsage, refused);
  run.env().put_file(checkpoint_path(4) + ".partial/part-00000.safetensors", "");
  expect_refused(run, ExitCode::kUsage, refused);
  EXPECT_EQ(run.run({{"layout.dp", "2"}, {"out.overwrite", "true"}}).error, "");
  EXPECT_EQ(run.curve(), curve_);
}

TEST_F(DamagedCheckpoint, ResumeNamesACheckpointThatIsThere) {
  SmallRun run(whole_);
  const auto refused = [&](const std::string& resume, const std::string& said) {
    SCOPED_TRACE(resume);
    expect_refused(run, ExitCode::kUsage, HasSubstr("checkpoint.resume = " + resume + ": " + said),
                   {{"layout.dp", "2"}, {"checkpoint.resume", resume}, {"out.directory", "new"}});
    EXPECT_FALSE(run.env().exists("new"));
  };
  refused("nowhere", "there is no such directory");
  refused("config.json", "is a file; a checkpoint is a directory");
  refused(checkpoint_path(3), "there is no such directory");
  refused("data", "is no checkpoint (there is no manifest.json in it) and holds none");
  run.env().put_file("killed/checkpoints/step-00000002.partial/part-00000.safetensors", "");
  refused("killed",
          "has no complete checkpoint, only a save that was not completed: killed/checkpoints/step-00000002.partial");
  refused("killed/checkpoints", "has no complete checkpoint, only a save that was not completed");
  refused("killed/checkpoints/step-00000002.partial", "has no complete checkpoint, only a save that was not completed");
}

// What is said of the start comes before anything of this directory is replaced.
TEST_F(DamagedCheckpoint, ADirectoryIsReplacedOnlyByARunThatCanStart) {
  SmallRun run(whole_);
  for (const auto& [path, content] : run.files("out")) run.env().put_file("other" + path.substr(3), content);
  damage(run.env(), "other/checkpoints/step-00000004/" + checkpoint::shard_name(0), 5000);
  expect_refused(
      run, ExitCode::kStorage, HasSubstr("none of 1 checkpoint is whole"),
      {{"layout.dp", "2"}, {"checkpoint.resume", "other/checkpoints/step-00000004"}, {"out.overwrite", "true"}});
  damage(run.env(), shard_of(4, 0), 5000);
  damage(run.env(), shard_of(2, 0), 5000);
  run.env().put_file("out/checkpoints/step-00000006.partial/part-00000.safetensors", "");
  expect_refused(run, ExitCode::kStorage, HasSubstr("none of 2 checkpoints is whole"), {{"layout.tp", "2"}});
}

TEST_F(DamagedCheckpoint, OverwritingDoesNotRemoveWhatTheRunIsToStartFrom) {
  SmallRun run(whole_);
  for (const std::string resume : {"out", "out/", "./out", "././out/checkpoints", "./out/checkpoints/step-00000002"}) {
    SCOPED_TRACE(resume);
    expect_refused(run, ExitCode::kUsage,
                   AllOf(HasSubstr("out.overwrite = out: would remove the checkpoint that the run is to start from"),
                         HasSubstr("one of --overwrite and --resume, or another --out")),
                   {{"layout.dp", "2"}, {"checkpoint.resume", resume}, {"out.overwrite", "true"}});
  }
  // A link to the directory, as far as this disk knows of such.
  Settings elsewhere = {{"layout.dp", "2"}, {"checkpoint.resume", "out/../out"}, {"out.overwrite", "true"}};
  expect_refused(run, ExitCode::kUsage, HasSubstr("would remove the checkpoint"), elsewhere);
  const SmallRun::Outcome outcome =
      run.run({{"layout.dp", "2"}, {"checkpoint.resume", "./out/checkpoints/step-00000002"}});
  EXPECT_EQ(outcome.error, "");
  EXPECT_EQ(outcome.first_step, 3);
  EXPECT_EQ(run.curve(), curve_);
}

TEST_F(DamagedCheckpoint, ResumeOfADamagedOneIsNoOtherOne) {
  SmallRun run(whole_);
  damage(run.env(), shard_of(4, 0), 5000);
  expect_refused(run, ExitCode::kStorage, AllOf(HasSubstr("none of 1 checkpoint is whole"), HasSubstr(shard_of(4, 0))),
                 {{"layout.dp", "2"}, {"checkpoint.resume", checkpoint_path(4)}});
}

}  // namespace
}  // namespace trireme::train
