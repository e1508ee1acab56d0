#include "base/fake_disk.h"

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/fake_env.h"

namespace trireme {
namespace {

// What every file holds ("-" where there is none), in the states that a power loss leaves after `prepare`.
std::set<std::string> states_after(const std::function<void(FakeEnv&)>& prepare, const std::vector<std::string>& files,
                                   std::uint64_t seeds = 400) {
  std::set<std::string> states;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    FakeEnv env;
    prepare(env);
    env.lose_power(seed);
    std::string state;
    for (const std::string& file : files) {
      state += (state.empty() ? "" : " ") + (env.exists(file) ? env.content(file) : std::string("-"));
    }
    states.insert(state);
  }
  return states;
}

using States = std::set<std::string>;

TEST(FakeDisk, DirectoriesAreRenamedWithAllInside) {
  FakeEnv env;
  env.put_file("run/old/deep/f", "x");
  env.make_directories("run/new");
  env.rename("run/old", "run/new");  // replaces an empty directory
  EXPECT_FALSE(env.exists("run/old"));
  EXPECT_EQ(env.content("run/new/deep/f"), "x");
  env.rename("run/new/deep", "moved");
  EXPECT_EQ(env.content("moved/f"), "x");
  EXPECT_TRUE(env.list_directory("run/new").empty());
  env.remove_directory("run/new");
  EXPECT_TRUE(env.list_directory("run").empty());
  env.put_file("/root/f", "y");
  EXPECT_EQ(env.list_directory("/"), (std::vector<std::string>{"root"}));
  EXPECT_EQ(env.content("/root/../root/./f"), "y");
}

TEST(FakeDisk, AFileReplacesAFile) {
  FakeEnv env;
  env.put_file("a", "new");
  env.put_file("b", "old");
  env.rename("a", "b");
  EXPECT_EQ(env.content("b"), "new");
  EXPECT_FALSE(env.exists("a"));
  env.rename("b", "b");
  EXPECT_EQ(env.content("b"), "new");
}

void expect_refused(ExitCode code, const std::string& reason, const std::function<void()>& call) {
  try {
    call();
    ADD_FAILURE() << "not refused: " << reason;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_NE(std::string(error.what()).find(reason), std::string::npos) << error.what();
  }
}

TEST(FakeDisk, WhatLinuxRefusesIsRefused) {
  FakeEnv env;
  env.put_file("d/f", "x");
  env.put_file("e/f", "x");
  env.make_directories("empty");
  const char* not_empty = "Directory not empty";
  const char* no_directory = "Not a directory";
  const char* is_directory = "Is a directory";
  const char* absent = "No such file or directory";
  expect_refused(ExitCode::kStorage, not_empty, [&] { env.rename("d", "e"); });
  expect_refused(ExitCode::kStorage, not_empty, [&] { env.remove_directory("d"); });
  expect_refused(ExitCode::kStorage, "Invalid argument", [&] { env.rename("d", "d/inside"); });
  expect_refused(ExitCode::kStorage, "busy", [&] { env.remove_directory("/"); });
  expect_refused(ExitCode::kUsage, is_directory, [&] { env.rename("d/f", "empty"); });
  expect_refused(ExitCode::kUsage, no_directory, [&] { env.rename("empty", "d/f"); });
  expect_refused(ExitCode::kUsage, absent, [&] { env.rename("d/f", "absent/f"); });
  expect_refused(ExitCode::kUsage, is_directory, [&] { env.remove_file("empty"); });
  expect_refused(ExitCode::kUsage, no_directory, [&] { env.remove_directory("d/f"); });
  expect_refused(ExitCode::kUsage, absent, [&] { env.remove_directory("absent"); });
  expect_refused(ExitCode::kUsage, is_directory, [&] { env.read_file("d"); });
  expect_refused(ExitCode::kUsage, no_directory, [&] { env.read_file("d/f/g"); });
  expect_refused(ExitCode::kUsage, no_directory, [&] { env.create_file("d/f/g"); });
  expect_refused(ExitCode::kUsage, no_directory, [&] { env.list_directory("d/f"); });
  expect_refused(ExitCode::kUsage, no_directory, [&] { env.sync_directory("d/f"); });
  expect_refused(ExitCode::kUsage, absent, [&] { env.sync_directory("absent"); });
  expect_refused(ExitCode::kUsage, absent, [&] { env.free_space("absent"); });
  expect_refused(ExitCode::kUsage, absent, [&] { env.try_lock("absent/lock"); });
  expect_refused(ExitCode::kUsage, absent, [&] { env.read_file(""); });
  expect_refused(ExitCode::kUsage, absent, [&] { env.create_file(""); });
  EXPECT_FALSE(env.exists(""));
  expect_refused(ExitCode::kUsage, is_directory, [&] { env.put_file("d", "x"); });
  const auto writer = env.create_file("g");
  writer->close();
  writer->close();
  expect_refused(ExitCode::kStorage, "Bad file descriptor", [&] { writer->write_text("x"); });
}

TEST(FakeDisk, RoomIsFreeReservedOrUsed) {
  FakeEnv env;
  EXPECT_GT(env.free_space("."), Bytes{std::int64_t{1} << 30});
  env.limit_bytes(100);
  const auto writer = env.create_file("a");
  writer->reserve(Bytes{60});
  writer->reserve(Bytes{60});
  EXPECT_EQ(env.file_size("a"), 0);
  EXPECT_EQ(env.free_space("."), Bytes{40});
  const auto other = env.create_file("b");
  expect_refused(ExitCode::kStorage, "No space left", [&] { other->reserve(Bytes{41}); });
  expect_refused(ExitCode::kStorage, "No space left", [&] { other->write_text(std::string(50, 'x')); });
  EXPECT_EQ(env.file_size("b"), 40);  // what there was room for
  writer->write_text(std::string(60, 'y'));
  expect_refused(ExitCode::kStorage, "No space left", [&] { writer->write_text("y"); });
  env.remove_file("b");
  writer->write_text("y");
  env.create_file("a");
  EXPECT_EQ(env.free_space("."), Bytes{100});
}

TEST(FakeDisk, ADirectoryIsDurableWithItsParentsSync) {
  FakeEnv env;
  env.make_directories("run/step");
  const auto writer = env.create_file("run/step/f");
  writer->write_text("x");
  writer->sync();
  env.sync_directory("run/step");
  env.sync_directory("run");
  env.lose_power();
  EXPECT_FALSE(env.exists("run"));  // "." was not synced
  env.make_directories("run/step");
  env.sync_directory(".");
  env.lose_power();
  EXPECT_TRUE(env.is_directory("run"));
  EXPECT_FALSE(env.exists("run/step"));
  env.make_directories("run/step");
  env.sync_directory("run");
  env.remove_directory("run/step");
  env.lose_power();
  EXPECT_TRUE(env.is_directory("run/step"));
  env.remove_directory("run/step");
  env.sync_directory("run");
  env.lose_power();
  EXPECT_FALSE(env.exists("run/step"));
}

TEST(FakeDisk, HandlesDieWithThePower) {
  FakeEnv env;
  env.put_file("f", "x");
  const auto writer = env.append_file("f");
  const auto reader = env.open_reader("f");
  const auto lock = env.try_lock("lock");
  env.fail_from_operation(1);
  env.lose_power();
  EXPECT_EQ(env.read_file("f"), "x");  // a new start: nothing fails
  std::vector<std::byte> out(1);
  EXPECT_THROW(reader->read_at(0, out), Error);
  EXPECT_THROW(writer->write_text("y"), Error);
  EXPECT_THROW(writer->write_at(0, out), Error);
  EXPECT_THROW(writer->reserve(Bytes{1}), Error);
  EXPECT_THROW(writer->sync(), Error);
  EXPECT_THROW(writer->close(), Error);
  EXPECT_NE(env.try_lock("lock"), nullptr);
  EXPECT_EQ(env.content("f"), "x");
}

TEST(FakeDisk, AFailedSyncIsFinal) {
  FakeEnv env;
  env.put_file("f", "");
  const auto writer = env.create_file("f");
  writer->write_text("lost");
  env.fail_operation(1);
  EXPECT_THROW(writer->sync(), Error);
  writer->write_text(" kept");
  writer->sync();
  EXPECT_EQ(env.content("f"), "lost kept");
  env.lose_power();
  EXPECT_EQ(env.content("f"), std::string(4, '\0') + " kept");
}

TEST(FakeDisk, WritesAreKeptDroppedOrTornOneByOne) {
  const auto prepare = [](FakeEnv& env) {
    env.put_file("f", "0000");
    const auto writer = env.append_file("f");
    writer->write_at(0, std::as_bytes(std::span("ab", 2)));
    writer->write_at(2, std::as_bytes(std::span("cd", 2)));
  };
  EXPECT_EQ(states_after(prepare, {"f"}),
            (States{"0000", "00c0", "00cd", "a000", "a0c0", "a0cd", "ab00", "abc0", "abcd"}));
}

TEST(FakeDisk, ATruncationMayBeLost) {
  const auto prepare = [](FakeEnv& env) {
    env.put_file("f", "long");
    env.create_file("f")->write_text("x");
  };
  EXPECT_EQ(states_after(prepare, {"f"}), (States{"long", "xong", "", std::string(1, '\0'), "x"}));
}

TEST(FakeDisk, SectorsOfAWriteAreKeptOrDropped) {
  std::set<std::string> sectors;
  bool prefix = false;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    FakeEnv env;
    env.put_file("f", std::string(100, 'o'));
    env.append_file("f")->write_text(std::string(1400, 'n'));  // bytes 100 to 1500: parts of three sectors
    env.lose_power(seed);
    const std::string content = env.content("f");
    EXPECT_EQ(content.substr(0, 100), std::string(100, 'o'));
    std::string seen;
    for (const auto& [begin, end] : {std::pair<std::size_t, std::size_t>{100, 512}, {512, 1024}, {1024, 1500}}) {
      if (begin >= content.size()) continue;
      const std::string sector = content.substr(begin, end - begin);
      const auto count = [&](char c) { return static_cast<std::size_t>(std::count(sector.begin(), sector.end(), c)); };
      EXPECT_EQ(count('n') + count('\0'), sector.size());  // never anything but the new bytes or zeros
      const bool whole = count('n') == end - begin;
      prefix = prefix || (!whole && sector[0] == 'n');
      seen += whole ? 'n' : count('n') == 0 ? '0' : '?';
    }
    sectors.insert(seen);
  }
  EXPECT_TRUE(prefix);
  for (const char* expected : {"", "000", "nnn", "n", "nn", "n00", "0n", "00n", "0nn", "n0n"}) {
    EXPECT_TRUE(sectors.contains(expected)) << expected;
  }
}

TEST(FakeDisk, NamesAreKeptOrDroppedInAnyOrder) {
  const auto prepare = [](FakeEnv& env) {
    env.put_file("d/gone", "g");
    for (const char* name : {"d/a", "d/b"}) {
      const auto writer = env.create_file(name);
      writer->write_text("x");
      writer->sync();
    }
    env.remove_file("d/gone");
  };
  EXPECT_EQ(states_after(prepare, {"d/a", "d/b", "d/gone"}),
            (States{"- - g", "x - g", "- x g", "x x g", "- - -", "x - -", "- x -", "x x -"}));
}

TEST(FakeDisk, ARenameIsOldOrNewOrBoth) {
  const auto prepare = [](FakeEnv& env) {
    env.put_file("d/a", "new");
    env.put_file("d/b", "old");
    env.rename("d/a", "d/b");
  };
  EXPECT_EQ(states_after(prepare, {"d/a", "d/b"}), (States{"new old", "- new", "new new"}));
  const auto directories = [](FakeEnv& env) {
    env.put_file("d/a/f", "new");
    env.rename("d/a", "d/b");
  };
  EXPECT_EQ(states_after(directories, {"d/a/f", "d/b/f"}), (States{"new -", "- new"}));
}

// Changes of one name keep their order, so what a rename moved away is never written over in its old place.
TEST(FakeDisk, NothingSyncedIsLostByAReusedName) {
  const auto prepare = [](FakeEnv& env) {
    env.put_file("d/a", "synced");
    env.rename("d/a", "d/b");
    const auto writer = env.create_file("d/a");
    writer->write_text("2");
    writer->sync();
  };
  EXPECT_EQ(states_after(prepare, {"d/a", "d/b"}), (States{"synced -", "- synced", "synced synced", "2 synced"}));
}

TEST(FakeDisk, AMoveBetweenDirectoriesIsDurableWhereItWentOnceThatIsSynced) {
  for (const char* synced : {"d", "e"}) {
    const auto prepare = [&](FakeEnv& env) {
      env.put_file("d/a", "x");
      env.make_directories("e");
      env.sync_directory(".");
      env.rename("d/a", "e/a");
      env.sync_directory(synced);
    };
    const bool source = std::string(synced) == "d";
    EXPECT_EQ(states_after(prepare, {"d/a", "e/a"}), source ? States{"- x"} : (States{"- x", "x x"})) << synced;
  }
}

TEST(FakeDisk, DirectoriesThatChangeParentsNeverFormACircle) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    FakeEnv env;
    env.put_file("a/f", "a");
    env.put_file("b/f", "b");
    env.rename("a", "b/a");
    env.rename("b/a", "c");
    env.rename("b", "c/b");
    const CrashEffects effects = env.lose_power(seed);
    EXPECT_EQ(effects.kept_names + effects.dropped_names, 3);
    int found = 0;
    for (const char* path : {"a/f", "b/f", "b/a/f", "c/f", "c/b/f"}) found += env.exists(path) ? 1 : 0;
    EXPECT_EQ(found, 2);
  }
}

TEST(FakeDisk, WhatIsSyncedIsNeverLostAndASeedGivesOneState) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    std::string contents[2];
    CrashEffects effects[2];
    for (int i = 0; i < 2; ++i) {
      FakeEnv env;
      env.make_directories("d");
      env.sync_directory(".");
      const auto writer = env.create_file("d/f");
      writer->write_text("synced");
      writer->sync();
      env.sync_directory("d");
      for (int k = 0; k < 8; ++k) writer->write_text(std::string(700, 'x'));
      for (const char* name : {"d/1", "d/2", "d/3"}) env.create_file(name);
      effects[i] = env.lose_power(seed);
      contents[i] = env.content("d/f");
      EXPECT_TRUE(contents[i].starts_with("synced"));
      EXPECT_EQ(effects[i].kept_writes + effects[i].dropped_writes + effects[i].torn_writes, 8);
      EXPECT_EQ(effects[i].kept_names + effects[i].dropped_names, 3);
      env.lose_power(seed + 1);  // what a crash left is durable
      EXPECT_EQ(env.content("d/f"), contents[i]);
    }
    EXPECT_EQ(contents[0], contents[1]);
    EXPECT_EQ(effects[0].torn_writes, effects[1].torn_writes);
    EXPECT_EQ(effects[0].reordered_names, effects[1].reordered_names);
  }
}

}  // namespace
}  // namespace trireme
