#include "checkpoint/store.h"

#include <cerrno>
#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/fake_env.h"
#include "base/file_error.h"

namespace trireme::checkpoint {
namespace {

using Steps = std::vector<std::int64_t>;
using Names = std::vector<std::string>;

constexpr const char* kDirectory = "run/checkpoints";

Manifest manifest_of(std::int64_t step) {
  Manifest manifest;
  manifest.progress.step = step;
  return manifest;
}

void save(Env& env, Store& store, std::int64_t step) {
  store.begin(step);
  const auto writer = env.create_file(join_path(store.partial_path_of(step), shard_name(0)));
  writer->write_text("shard");
  writer->sync();
  writer->close();
  store.commit(step, manifest_of(step));
}

class StoreTest : public testing::Test {
 protected:
  StoreTest() { env_.put_file("run/run.toml", ""); }
  void save(std::int64_t step) { checkpoint::save(env_, store_, step); }
  Names all() { return env_.list_directory(kDirectory); }

  FakeEnv env_;
  Store store_{env_, kDirectory};
};

TEST_F(StoreTest, NamesAreStepsOfEightDigitsOrMore) {
  EXPECT_EQ(name_of_step(40), "step-00000040");
  EXPECT_EQ(name_of_step(123456789), "step-123456789");
  EXPECT_EQ(step_of_name("step-00000040"), 40);
  EXPECT_EQ(step_of_name("step-123456789"), 123456789);
  EXPECT_EQ(step_of_name("step-7"), 7);
  for (const char* name : {"", "step-", "step-00000040.partial", "step-00000040.aside", "step--0000040", "step-+1",
                           "xstep-00000040", "step-99999999999999999999", "step-0x10", "latest"}) {
    EXPECT_EQ(step_of_name(name), std::nullopt) << name;
  }
  EXPECT_THROW(name_of_step(-1), InternalError);
  EXPECT_EQ(shard_name(3), "part-00003.safetensors");
  EXPECT_EQ(store_.path_of(40), "run/checkpoints/step-00000040");
  EXPECT_EQ(store_.partial_path_of(40), "run/checkpoints/step-00000040.partial");
}

TEST_F(StoreTest, PartialNamesCarryTheIncarnation) {
  const Store third(env_, kDirectory, 3), later(env_, kDirectory, 12345678);
  EXPECT_EQ(third.partial_path_of(40), "run/checkpoints/step-00000040.inc-000003.partial");
  EXPECT_EQ(later.partial_path_of(40), "run/checkpoints/step-00000040.inc-12345678.partial");
  EXPECT_EQ(third.path_of(40), store_.path_of(40));
  EXPECT_THROW(Store(env_, kDirectory, -1), InternalError);
}

TEST_F(StoreTest, EveryNameIsParsedOrNobodys) {
  EXPECT_EQ(parse_stored_name("step-00000040"), (StoredName{40, Presence::kComplete, 0}));
  EXPECT_EQ(parse_stored_name("step-123456789"), (StoredName{123456789, Presence::kComplete, 0}));
  EXPECT_EQ(parse_stored_name("step-00000040.partial"), (StoredName{40, Presence::kPartial, 0}));
  EXPECT_EQ(parse_stored_name("step-00000040.inc-000003.partial"), (StoredName{40, Presence::kPartial, 3}));
  EXPECT_EQ(parse_stored_name("step-00000040.inc-12345678.partial"), (StoredName{40, Presence::kPartial, 12345678}));
  EXPECT_EQ(parse_stored_name("step-00000040.aside"), (StoredName{40, Presence::kAside}));
  EXPECT_EQ(parse_stored_name("step-00000040.aside.12"), (StoredName{40, Presence::kAside, 0, 12}));
  for (const char* end : {".", ".part", ".inc-000003", ".inc-3.partial", ".inc-000000.partial", ".inc-.partial",
                          ".inc-0000003.partial", ".inc-00000x.partial", ".inc-99999999999999999999.partial",
                          ".inc--00003.partial", ".incarnation-000003.partial", "inc-000003.partial", ".partial.1",
                          ".partial.partial", ".asides", ".aside.", ".aside.x", ".aside.2.partial", ".aside.-2"}) {
    EXPECT_EQ(parse_stored_name(std::string("step-00000040") + end), std::nullopt) << end;
  }
  for (const char* name : {"", ".partial", "step-40", "step-40.partial", "step-0000000040", "x", "notes.partial"}) {
    EXPECT_EQ(parse_stored_name(name), std::nullopt) << name;
  }
}

TEST_F(StoreTest, StartsOfDifferentIncarnationsNeverMeet) {
  Store zombie(env_, kDirectory, 2), newer(env_, kDirectory, 3);
  zombie.begin(40);
  env_.put_file(join_path(zombie.partial_path_of(40), shard_name(0)), "late");
  newer.begin(40);
  env_.put_file(join_path(newer.partial_path_of(40), shard_name(0)), "shard");
  zombie.abandon(40);
  EXPECT_EQ(all(), Names{"step-00000040.inc-000003.partial"});
  EXPECT_EQ(env_.content(join_path(newer.partial_path_of(40), shard_name(0))), "shard");
}

// A zombie's shard gets its name while the new start removes the directory.
TEST(Store, RemovesAPartialDirectoryThatStillGrows) {
  class GrowingEnv : public FakeEnv {
   public:
    void remove_directory(const std::string& path) override {
      if (grows-- > 0) create_file(join_path(path, shard_name(1)));
      FakeEnv::remove_directory(path);
    }
    int grows = 1;
  };
  GrowingEnv env;
  const std::string partial = join_path(kDirectory, "step-00000040.inc-000001.partial");
  env.put_file(join_path(partial, shard_name(0)), "late");
  Store store(env, kDirectory, 2);
  store.remove_partial();
  EXPECT_FALSE(env.exists(partial));
  env.put_file(join_path(partial, shard_name(0)), "late");
  env.grows = 1000;
  EXPECT_THROW(store.remove_partial(), Error);
}

TEST_F(StoreTest, ACommitThatMayNotBeLeavesNoCheckpoint) {
  for (const int refused : {1, 2}) {
    Store store(env_, kDirectory, 2);
    store.begin(40);
    const std::string manifest = join_path(store.partial_path_of(40), kManifestFile);
    int asked = 0;
    const auto may_commit = [&] {
      EXPECT_EQ(env_.exists(manifest), asked == 1);
      if (++asked == refused) throw Error(ExitCode::kRankLost, "checkpoint", "write", "a newer start has it");
    };
    EXPECT_THROW(store.commit(40, Manifest{}, may_commit), Error);
    EXPECT_EQ(asked, refused);
    EXPECT_TRUE(store.steps().empty());
    store.abandon(40);
    EXPECT_TRUE(all().empty());
  }
  Store store(env_, kDirectory, 3);
  store.begin(40);
  int asked = 0;
  store.commit(40, Manifest{}, [&] { ++asked; });
  EXPECT_EQ(asked, 2);
  EXPECT_EQ(all(), Names{"step-00000040"});
}

TEST_F(StoreTest, StepsAreThoseCompleteByName) {
  EXPECT_TRUE(store_.steps().empty());
  EXPECT_NO_THROW(store_.remove_partial());
  EXPECT_NO_THROW(store_.remove_all());
  EXPECT_TRUE(store_.set_aside_after(0).empty());
  EXPECT_TRUE(store_.retain({1, 0}).steps.empty());
  for (const std::int64_t step : {100000000, 40, 20}) save(step);
  store_.begin(60);
  env_.make_directories("run/checkpoints/step-80");  // not a name that this program gives
  env_.put_file("run/checkpoints/step-00000090", "a file");
  EXPECT_EQ(store_.steps(), (Steps{20, 40, 100000000}));
}

TEST_F(StoreTest, ACheckpointAppearsWholeWithItsCommit) {
  store_.begin(40);
  EXPECT_TRUE(env_.list_directory(store_.partial_path_of(40)).empty());
  env_.create_file(join_path(store_.partial_path_of(40), shard_name(0)));
  EXPECT_TRUE(store_.steps().empty());
  store_.commit(40, manifest_of(40));
  EXPECT_EQ(store_.steps(), Steps{40});
  EXPECT_EQ(all(), Names{"step-00000040"});
  EXPECT_EQ(env_.list_directory(store_.path_of(40)), (Names{kManifestFile, shard_name(0)}));
  const std::string text = env_.content(join_path(store_.path_of(40), kManifestFile));
  EXPECT_EQ(text, to_text(manifest_of(40)));
  EXPECT_THROW(store_.begin(40), InternalError);
  EXPECT_THROW(store_.commit(40, manifest_of(40)), InternalError);
}

// Written by a rank whose host does not share the directory.
TEST_F(StoreTest, AShardThatIsNotThereIsNotCommitted) {
  Manifest manifest = manifest_of(40);
  manifest.files = {{"part-00000.safetensors", 5, "x"}};
  store_.begin(40);
  for (const std::string content : {"", "shar"}) {
    if (!content.empty()) env_.put_file(join_path(store_.partial_path_of(40), shard_name(0)), content);
    try {
      store_.commit(40, manifest);
      ADD_FAILURE() << "committed without its shard";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kStorage);
      EXPECT_THAT(error.what(), testing::HasSubstr("step-00000040.partial/part-00000.safetensors"));
      EXPECT_THAT(error.what(), testing::HasSubstr(content.empty() ? "is not there" : "expected 5 bytes, found 4"));
    }
    EXPECT_TRUE(store_.steps().empty());
  }
}

TEST_F(StoreTest, IsDurableWhenCommitReturns) {
  Store deep(env_, "run/a/b/c");
  checkpoint::save(env_, deep, 40);
  env_.lose_power();
  EXPECT_EQ(deep.steps(), Steps{40});
  EXPECT_EQ(env_.content(join_path(deep.path_of(40), shard_name(0))), "shard");
  EXPECT_EQ(env_.content(join_path(deep.path_of(40), kManifestFile)), to_text(manifest_of(40)));
}

// A start that was killed made the directory and did not sync it.
TEST_F(StoreTest, TheDirectoryIsMadeDurableWhereItExists) {
  env_.make_directories(kDirectory);
  save(40);
  env_.lose_power();
  EXPECT_EQ(store_.steps(), Steps{40});
}

TEST_F(StoreTest, BeginEmptiesWhatAFailedSaveLeft) {
  store_.begin(40);
  env_.create_file(join_path(store_.partial_path_of(40), shard_name(7)));
  store_.begin(40);
  EXPECT_TRUE(env_.list_directory(store_.partial_path_of(40)).empty());
}

TEST_F(StoreTest, AFailedSaveIsAbandoned) {
  save(20);
  store_.begin(40);
  env_.create_file(join_path(store_.partial_path_of(40), shard_name(0)));
  store_.abandon(40);
  EXPECT_EQ(all(), Names{"step-00000020"});
  store_.abandon(40);  // nothing there
  store_.abandon(20);  // complete: not a failed save
  EXPECT_EQ(store_.steps(), Steps{20});
  store_.begin(40);
  env_.create_file(join_path(store_.partial_path_of(40), shard_name(0)));
  env_.fail_from_operation(1);
  EXPECT_NO_THROW(store_.abandon(40));
}

TEST_F(StoreTest, WhatKilledSavesLeftIsRemoved) {
  save(20);
  store_.begin(40);
  env_.create_file(join_path(store_.partial_path_of(40), shard_name(0)));
  store_.begin(60);
  for (const char* left : {"step-00000060.inc-000001.partial", "step-00000060.inc-000009.partial"}) {
    // Of earlier starts, and of one whose number is not known.
    env_.put_file(join_path(join_path(kDirectory, left), shard_name(0)), "");
  }
  for (const char* name : {"step-00000080.partial", "step-80.partial/f", "notes.partial/f"}) {
    env_.put_file(join_path(kDirectory, name), "not a save's");
  }
  store_.remove_partial();
  EXPECT_EQ(all(), (Names{"notes.partial", "step-00000020", "step-00000080.partial", "step-80.partial"}));
}

TEST_F(StoreTest, LaterCheckpointsAreSetAside) {
  for (const std::int64_t step : {20, 40, 60}) save(step);
  EXPECT_EQ(store_.set_aside_after(20), (Names{"step-00000040.aside", "step-00000060.aside"}));
  EXPECT_EQ(store_.steps(), Steps{20});
  env_.lose_power();
  EXPECT_EQ(store_.steps(), Steps{20});
  save(40);
  EXPECT_EQ(store_.set_aside_after(20), Names{"step-00000040.aside.2"});
  save(40);
  EXPECT_EQ(store_.set_aside_after(39), Names{"step-00000040.aside.3"});
  EXPECT_TRUE(store_.set_aside_after(20).empty());
  EXPECT_EQ(all().size(), 5U);
  EXPECT_EQ(env_.content("run/checkpoints/step-00000060.aside/part-00000.safetensors"), "shard");
}

TEST_F(StoreTest, RetentionKeepsTheNewestAndTheMultiples) {
  for (const std::int64_t step : {10, 20, 30, 40, 50}) save(step);
  EXPECT_TRUE(store_.retain({5, 0}).steps.empty());
  EXPECT_EQ(store_.retain({2, 20}).steps, (Steps{10, 30}));
  EXPECT_EQ(store_.steps(), (Steps{20, 40, 50}));
  EXPECT_EQ(store_.retain({1, 0}).steps, (Steps{20, 40}));
  EXPECT_EQ(all(), Names{"step-00000050"});
  EXPECT_TRUE(store_.retain({1, 0}).steps.empty());
  EXPECT_THROW(store_.retain({0, 0}), InternalError);
  EXPECT_THROW(store_.retain({1, -1}), InternalError);
}

TEST_F(StoreTest, RetentionReplacesWhatAFailedSaveLeftUnderItsName) {
  for (const std::int64_t step : {10, 20}) save(step);
  env_.put_file(join_path(store_.partial_path_of(10), shard_name(3)), "x");
  EXPECT_EQ(store_.retain({1, 0}).steps, Steps{10});
  EXPECT_EQ(all(), Names{"step-00000020"});
}

TEST_F(StoreTest, ANewRunRemovesCheckpointsAndNothingElse) {
  for (const std::int64_t step : {20, 40}) save(step);
  store_.set_aside_after(20);
  save(40);
  store_.set_aside_after(20);
  store_.begin(60);
  const Names others = {"notes", "step-00000020.asides", "step-00000040.aside.x", "step-80", "x.aside"};
  for (const std::string& name : others) env_.put_file(join_path(join_path(kDirectory, name), "f"), "mine");
  store_.remove_all();
  EXPECT_EQ(all(), others);
  env_.lose_power(7);
  EXPECT_TRUE(store_.steps().empty());  // none comes back under its name
}

// A directory that a user has made, or a file, or an export that was put there.
TEST_F(StoreTest, WhatIsNoCheckpointIsNoneWhateverItsName) {
  save(20);
  env_.make_directories("run/checkpoints/step-00000099");
  env_.make_directories("run/checkpoints/lost+found");
  env_.put_file("run/checkpoints/.DS_Store", "");
  env_.put_file("run/checkpoints/step-xyz/config.json", "{}");
  env_.put_file("run/checkpoints/step-00000098/model.safetensors", "an export");
  env_.put_file("run/checkpoints/step-00000040", "a file");
  EXPECT_EQ(store_.steps(), Steps{20});
  const Names before = all();
  EXPECT_TRUE(store_.set_aside_after(0) == Names{"step-00000020.aside"});
  env_.rename("run/checkpoints/step-00000020.aside", "run/checkpoints/step-00000020");
  EXPECT_TRUE(store_.retain({1, 0}).steps.empty());
  EXPECT_TRUE(store_.remove_partial().left.empty());
  EXPECT_EQ(all(), before);
  // One whose manifest was lost is a damaged one.
  save(60);
  env_.remove_file("run/checkpoints/step-00000060/manifest.json");
  EXPECT_EQ(store_.steps(), (Steps{20, 60}));
}

TEST_F(StoreTest, WhatStandsWhereACheckpointBelongsGetsAnotherName) {
  env_.put_file("run/checkpoints/step-00000040", "a file");
  env_.put_file("run/checkpoints/step-00000040.partial", "a file too");
  EXPECT_EQ(store_.begin(40).left, (Names{"step-00000040.left", "step-00000040.left.2"}));
  env_.put_file("run/checkpoints/step-00000040/mine", "put there during the save");
  EXPECT_EQ(store_.commit(40, manifest_of(40)).left, Names{"step-00000040.left.3"});
  EXPECT_EQ(store_.steps(), Steps{40});
  EXPECT_EQ(env_.content("run/checkpoints/step-00000040.left"), "a file");
  EXPECT_EQ(env_.content("run/checkpoints/step-00000040.left.2"), "a file too");
  EXPECT_EQ(env_.content("run/checkpoints/step-00000040.left.3/mine"), "put there during the save");
}

TEST_F(StoreTest, RetentionRemovesNoFileThatNoSaveHasWritten) {
  for (const std::int64_t step : {10, 20, 30}) save(step);
  env_.put_file("run/checkpoints/step-00000010/notes.txt", "mine");
  env_.put_file("run/checkpoints/step-00000020/eval/part-00000.safetensors", "mine");
  const Removal removal = store_.retain({1, 0});
  EXPECT_EQ(removal.steps, (Steps{10, 20}));
  EXPECT_EQ(removal.left, (Names{"step-00000010.left", "step-00000020.left"}));
  EXPECT_EQ(all(), (Names{"step-00000010.left", "step-00000020.left", "step-00000030"}));
  EXPECT_EQ(env_.list_directory("run/checkpoints/step-00000010.left"), Names{"notes.txt"});
  EXPECT_EQ(env_.content("run/checkpoints/step-00000020.left/eval/part-00000.safetensors"), "mine");
  EXPECT_TRUE(store_.remove_all().left.empty());
  EXPECT_EQ(all(), (Names{"step-00000010.left", "step-00000020.left"}));
}

// A copy of another step's, or one that was renamed: no retention of this run has made it.
TEST_F(StoreTest, ACheckpointOfAnotherStepThanItsNameStays) {
  for (const std::int64_t step : {20, 30, 40}) save(step);
  env_.put_file("run/checkpoints/step-00000010/manifest.json", to_text(manifest_of(30)));
  EXPECT_EQ(store_.retain({1, 0}).steps, (Steps{20, 30}));
  EXPECT_EQ(all(), (Names{"step-00000010", "step-00000040"}));
  env_.put_file("run/checkpoints/step-00000050/manifest.json", to_text(manifest_of(30)));
  EXPECT_TRUE(store_.retain({1, 0}).steps.empty());  // it does not count as the newest
  EXPECT_EQ(all(), (Names{"step-00000010", "step-00000040", "step-00000050"}));
  EXPECT_EQ(store_.remove_all().left, (Names{"step-00000010.aside", "step-00000050.aside"}));
  EXPECT_EQ(all(), (Names{"step-00000010.aside", "step-00000050.aside"}));
}

TEST_F(StoreTest, ThoseSetAsideAreCountedOnceTheRunIsBeyondThem) {
  for (int time = 0; time < 4; ++time) {
    for (const std::int64_t step : {20, 40, 60}) {
      if (time == 0 || step > 20) save(step);
    }
    store_.set_aside_after(20);
  }
  EXPECT_EQ(all().size(), 9U);
  store_.retain({2, 0});
  EXPECT_EQ(all().size(), 9U);  // each may be wanted
  save(40);
  store_.retain({2, 0});
  EXPECT_EQ(all(),
            (Names{"step-00000020", "step-00000040", "step-00000040.aside.3", "step-00000040.aside.4",
                   "step-00000060.aside", "step-00000060.aside.2", "step-00000060.aside.3", "step-00000060.aside.4"}));
  store_.set_aside_after(20);
  save(80);
  store_.retain({2, 0});
  EXPECT_EQ(all(), (Names{"step-00000020", "step-00000060.aside.3", "step-00000060.aside.4", "step-00000080"}));
}

TEST_F(StoreTest, OneThatCannotBeRemovedKeepsNoOtherFromIt) {
  class HoldingEnv : public FakeEnv {
   public:
    void remove_file(const std::string& path) override {
      if (path.find("step-00000010") != std::string::npos) throw FileError("remove", path, EACCES);
      FakeEnv::remove_file(path);
    }
  };
  HoldingEnv env;
  Store store(env, kDirectory);
  for (const std::int64_t step : {10, 20, 30}) checkpoint::save(env, store, step);
  EXPECT_THROW(store.retain({1, 0}), Error);
  EXPECT_EQ(env.list_directory(kDirectory), (Names{"step-00000010.partial", "step-00000030"}));
}

// Runs `act` with each of its operations failing: once, or it and all after it (a kill), with the power lost or not.
void at_each_operation(const std::function<void(FakeEnv&, Store&)>& prepare,
                       const std::function<void(FakeEnv&, Store&)>& act,
                       const std::function<void(FakeEnv&, Store&)>& verify) {
  const auto fresh = [&](FakeEnv& env, Store& store) {
    env.put_file("run/run.toml", "");
    prepare(env, store);
    env.fail_operation(0);
  };
  FakeEnv counting;
  Store counted(counting, kDirectory);
  fresh(counting, counted);
  act(counting, counted);
  const std::int64_t operations = counting.operations();
  EXPECT_GT(operations, 3);
  for (std::int64_t n = 1; n <= operations; ++n) {
    for (const int end : {0, 1, 2, 3}) {
      SCOPED_TRACE(testing::Message() << "operation " << n << ", end " << end);
      FakeEnv env;
      Store store(env, kDirectory);
      fresh(env, store);
      end == 0 ? env.fail_operation(n) : env.fail_from_operation(n);
      EXPECT_THROW(act(env, store), Error);
      env.fail_operation(0);
      if (end == 2) env.lose_power();
      if (end == 3) env.lose_power(static_cast<std::uint64_t>(n));
      Store next(env, kDirectory);
      verify(env, next);
    }
  }
}

void expect_whole(FakeEnv& env, Store& store) {
  for (const std::int64_t step : store.steps()) {
    EXPECT_EQ(env.content(join_path(store.path_of(step), shard_name(0))), "shard") << step;
    EXPECT_EQ(env.content(join_path(store.path_of(step), kManifestFile)), to_text(manifest_of(step))) << step;
  }
}

TEST(StoreKills, ASaveIsCompleteOrNotThere) {
  at_each_operation([](FakeEnv& env, Store& store) { save(env, store, 20); },
                    [](FakeEnv& env, Store& store) { save(env, store, 40); },
                    [](FakeEnv& env, Store& store) {
                      expect_whole(env, store);
                      EXPECT_EQ(store.steps().front(), 20);
                      store.remove_partial();
                      expect_whole(env, store);
                      if (store.steps() == Steps{20}) save(env, store, 40);
                      EXPECT_EQ(env.list_directory(kDirectory), (Names{"step-00000020", "step-00000040"}));
                    });
}

TEST(StoreKills, RetentionLeavesNoCheckpointWithoutItsFiles) {
  at_each_operation(
      [](FakeEnv& env, Store& store) {
        for (const std::int64_t step : {20, 40, 60}) save(env, store, step);
      },
      [](FakeEnv&, Store& store) {
        store.retain({1, 0});
      },
      [](FakeEnv& env, Store& store) {
        expect_whole(env, store);
        store.remove_partial();
        store.retain({1, 0});
        EXPECT_EQ(env.list_directory(kDirectory), Names{"step-00000060"});
        expect_whole(env, store);
      });
}

TEST(StoreKills, SettingAsideLosesNothing) {
  at_each_operation(
      [](FakeEnv& env, Store& store) {
        for (const std::int64_t step : {20, 40, 60}) save(env, store, step);
      },
      [](FakeEnv&, Store& store) { store.set_aside_after(20); },
      [](FakeEnv& env, Store& store) {
        expect_whole(env, store);
        EXPECT_EQ(env.list_directory(kDirectory).size(), 3U);
        store.set_aside_after(20);
        EXPECT_EQ(env.list_directory(kDirectory),
                  (Names{"step-00000020", "step-00000040.aside", "step-00000060.aside"}));
      });
}

}  // namespace
}  // namespace trireme::checkpoint
