#include "checkpoint/find.h"

#include <gmock/gmock.h>

#include "base/fake_env.h"

namespace trireme::checkpoint {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

void put_run(FakeEnv& env) {
  for (const char* name :
       {"step-00000020", "step-00000100", "step-00000040", "step-00000060.aside", "step-00000060.aside.2"}) {
    env.put_file(join_path("run/checkpoints", join_path(name, "manifest.json")), "{}");
  }
  env.put_file("run/checkpoints/step-00000120.partial/part-00000.safetensors", "x");
  env.put_file("run/checkpoints/step-00000120.inc-000003.partial/part-00000.safetensors", "x");
  // Nobody's names.
  env.put_file("run/checkpoints/step-20/manifest.json", "{}");
  env.put_file("run/checkpoints/step-00000030.old/manifest.json", "{}");
  env.put_file("run/checkpoints/step-00000140", "a file");
  env.put_file("run/metrics.jsonl", "");
}

TEST(Find, ARunAndItsDirectoryOfCheckpointsNewestFirst) {
  FakeEnv env;
  put_run(env);
  for (const char* path : {"run", "run/", "run/checkpoints", "run/checkpoints//"}) {
    EXPECT_THAT(
        find_checkpoints(env, path).value(),
        ElementsAre("run/checkpoints/step-00000100", "run/checkpoints/step-00000040", "run/checkpoints/step-00000020"))
        << path;
    EXPECT_EQ(newest_checkpoint(env, path).value(), "run/checkpoints/step-00000100") << path;
  }
}

TEST(Find, AListHasPartialOnesAndThoseSetAside) {
  FakeEnv env;
  put_run(env);
  const std::string at = "run/checkpoints/step-";
  EXPECT_THAT(list_checkpoints(env, "run").value(),
              ElementsAre(FoundCheckpoint{at + "00000120.inc-000003.partial", 120, Presence::kPartial},
                          FoundCheckpoint{at + "00000120.partial", 120, Presence::kPartial},
                          FoundCheckpoint{at + "00000100", 100, Presence::kComplete},
                          FoundCheckpoint{at + "00000060.aside", 60, Presence::kAside},
                          FoundCheckpoint{at + "00000060.aside.2", 60, Presence::kAside},
                          FoundCheckpoint{at + "00000040", 40, Presence::kComplete},
                          FoundCheckpoint{at + "00000020", 20, Presence::kComplete}));
}

TEST(Find, ACheckpointNamedItselfIsGivenWhateverItsName) {
  FakeEnv env;
  put_run(env);
  env.put_file("kept/best/manifest.json", "{}");
  for (const char* path : {"run/checkpoints/step-00000020", "run/checkpoints/step-00000060.aside", "kept/best"}) {
    EXPECT_THAT(find_checkpoints(env, path).value(), ElementsAre(path));
  }
  EXPECT_EQ(find_checkpoints(env, "kept/best/").value().front(), "kept/best");
  EXPECT_THAT(list_checkpoints(env, "kept/best").value(), ElementsAre(FoundCheckpoint{.path = "kept/best"}));
}

TEST(Find, ARunWithoutASaveHasNoneAndHasNoNewest) {
  FakeEnv env;
  env.put_file("run/metrics.jsonl", "");
  EXPECT_THAT(find_checkpoints(env, "run").value(), IsEmpty());
  const Failure failure = newest_checkpoint(env, "run").failure();
  EXPECT_EQ(failure.code, ExitCode::kStorage);
  EXPECT_THAT(failure.sentence(), HasSubstr("run: is no checkpoint (there is no manifest.json in it) and holds none"));
}

TEST(Find, APathThatIsNoDirectoryIsRefused) {
  FakeEnv env;
  put_run(env);
  EXPECT_EQ(newest_checkpoint(env, "absent").failure().code, ExitCode::kUsage);
  EXPECT_THAT(newest_checkpoint(env, "absent").failure().sentence(), HasSubstr("absent: there is no such directory"));
  const Failure file = find_checkpoints(env, "run/checkpoints/step-00000020/manifest.json").failure();
  EXPECT_EQ(file.code, ExitCode::kUsage);
  EXPECT_THAT(file.sentence(), HasSubstr("name the directory: run/checkpoints/step-00000020"));
}

TEST(Find, WhatIsThereInsteadOfACompleteOneIsSaid) {
  FakeEnv env;
  env.put_file("run/checkpoints/step-00000020.partial/part-00000.safetensors", "x");
  for (const char* path : {"run", "run/checkpoints/step-00000020.partial"}) {
    const Failure failure = newest_checkpoint(env, path).failure();
    EXPECT_EQ(failure.code, ExitCode::kStorage) << path;
    EXPECT_THAT(failure.sentence(), HasSubstr("only a save that was not completed: "
                                              "run/checkpoints/step-00000020.partial"));
  }
  env.put_file("run/checkpoints/step-00000040.aside/manifest.json", "{}");
  EXPECT_THAT(newest_checkpoint(env, "run").failure().sentence(),
              HasSubstr("name one of these: run/checkpoints/step-00000040.aside"));
}

}  // namespace
}  // namespace trireme::checkpoint
