#include "base/fake_env.h"

#include <cstring>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.h"

namespace trireme {
namespace {

TEST(FakeEnvTest, FilesAndDirectories) {
  FakeEnv env;
  env.put_file("run/a", "one");
  env.make_directories("run/sub/deep");
  env.create_file("run/sub/b")->write_text("two");
  EXPECT_EQ(env.read_file("run/sub/b"), "two");
  EXPECT_EQ(env.content("run/a"), "one");
  EXPECT_EQ(env.content("run/none"), "");
  EXPECT_EQ(env.file_size("run/a"), 3);
  EXPECT_TRUE(env.is_directory("run"));
  EXPECT_TRUE(env.is_directory("run/sub/deep"));
  EXPECT_FALSE(env.is_directory("run/a"));
  EXPECT_TRUE(env.exists("run"));
  EXPECT_EQ(env.list_directory("run"), (std::vector<std::string>{"a", "sub"}));
  EXPECT_EQ(env.list_directory("run/sub"), (std::vector<std::string>{"b", "deep"}));
  EXPECT_EQ(env.list_directory("."), (std::vector<std::string>{"run"}));
  env.rename("run/a", "run/c");
  EXPECT_FALSE(env.exists("run/a"));
  env.remove_file("run/c");
  EXPECT_FALSE(env.exists("run/c"));
}

TEST(FakeEnvTest, TwoPathsOfOneThingHaveOneRealPath) {
  FakeEnv env;
  env.put_file("a/b/c", "");
  EXPECT_EQ(env.real_path("./a//b/../b/"), "/a/b");
  EXPECT_THROW(env.real_path("a/d"), Error);
}

TEST(FakeEnvTest, ReadersWritersAndMappings) {
  FakeEnv env;
  const auto writer = env.create_file("f");
  writer->write_text("hello");
  writer->write_at(0, std::as_bytes(std::span("J", 1)));
  writer->write_text("!");
  env.append_file("f")->write_text("?");
  EXPECT_EQ(env.content("f"), "Jello!?");
  const auto reader = env.open_reader("f");
  EXPECT_EQ(reader->size(), 7);
  std::vector<std::byte> out(3);
  reader->read_at(1, out);
  EXPECT_EQ(std::memcmp(out.data(), "ell", 3), 0);
  EXPECT_THROW(reader->read_at(5, out), Error);
  EXPECT_THROW(reader->read_at(-1, out), Error);
  EXPECT_EQ(env.create_file("f") != nullptr, true);
  EXPECT_EQ(env.content("f"), "");
}

TEST(FakeEnvTest, WhatTheRealOneRefusesIsRefused) {
  FakeEnv env;
  env.put_file("f", "");
  EXPECT_THROW(env.read_file("absent"), Error);
  EXPECT_THROW(env.create_file("absent/f"), Error);
  EXPECT_THROW(env.remove_file("absent"), Error);
  EXPECT_THROW(env.rename("absent", "x"), Error);
  EXPECT_THROW(env.list_directory("absent"), Error);
  EXPECT_THROW(env.make_directories("f/x"), Error);
  env.make_directories("d");
  EXPECT_THROW(env.create_file("d"), Error);
}

TEST(FakeEnvTest, TheTestMovesTheClock) {
  FakeEnv env;
  const Seconds start = env.now();
  env.advance({1.5});
  env.sleep({86400});
  EXPECT_EQ(env.now().count - start.count, 86401.5);
  EXPECT_EQ(env.wall_time(), "2000-01-02T00:00:01Z");
}

TEST(FakeEnvTest, TheDiskFills) {
  FakeEnv env;
  env.put_file("f", "12345");
  env.limit_bytes(10);
  const auto writer = env.create_file("g");
  writer->write_text("12345");
  try {
    writer->write_text("6");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kStorage);
    EXPECT_NE(std::string(error.what()).find("No space left on device"), std::string::npos);
  }
  writer->write_at(0, std::as_bytes(std::span("x", 1)));  // needs no space
  env.remove_file("f");
  writer->write_text("6");
  EXPECT_EQ(env.content("g"), "x23456");
}

TEST(FakeEnvTest, TheNthOperationFails) {
  FakeEnv env;
  env.put_file("f", "x");
  env.fail_operation(2);
  EXPECT_NO_THROW(env.read_file("f"));
  EXPECT_THROW(env.read_file("f"), Error);
  EXPECT_NO_THROW(env.read_file("f"));
  EXPECT_EQ(env.operations(), 3);
  env.fail_from_operation(2);
  EXPECT_NO_THROW(env.read_file("f"));
  EXPECT_THROW(env.read_file("f"), Error);
  EXPECT_THROW(env.read_file("f"), Error);
  env.fail_operation(0);
  EXPECT_NO_THROW(env.read_file("f"));
}

TEST(FakeEnvTest, APowerLossForgetsWhatWasNotSynced) {
  FakeEnv env;
  env.put_file("d/kept", "kept");
  const auto writer = env.create_file("d/file");
  writer->write_text("synced");
  writer->sync();
  env.sync_directory("d");
  writer->write_text(" and not");
  env.create_file("d/nameless")->write_text("x");
  env.remove_file("d/kept");
  env.lose_power();
  EXPECT_EQ(env.content("d/file"), "synced");
  EXPECT_FALSE(env.exists("d/nameless"));
  EXPECT_EQ(env.content("d/kept"), "kept");
}

// At whatever operation the process dies or the power goes, a reader finds the old content or the new.
TEST(FakeEnvTest, AtomicWriteIsAtomicAtEveryOperation) {
  FakeEnv counting;
  counting.put_file("d/f", "old");
  counting.fail_operation(0);
  counting.write_file_atomically("d/f", "new");
  const std::int64_t operations = counting.operations();
  EXPECT_GE(operations, 5);
  for (const bool power_loss : {false, true}) {
    for (std::int64_t n = 1; n <= operations; ++n) {
      FakeEnv env;
      env.put_file("d/f", "old");
      env.fail_from_operation(n);
      EXPECT_THROW(env.write_file_atomically("d/f", "new"), Error);
      env.fail_operation(0);
      if (power_loss) env.lose_power();
      EXPECT_TRUE(env.content("d/f") == "old" || env.content("d/f") == "new") << n;
    }
  }
}

// What a replaced file may be after a power loss: this is why it is not for what must last.
TEST(FakeEnvTest, AReplacedFileIsWholeToReadersAndMayBeEmptyAfterAPowerLoss) {
  std::set<std::string> found;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    FakeEnv env;
    env.put_file("d/f", "old");
    env.replace_file("d/f", "new");
    EXPECT_EQ(env.content("d/f"), "new");
    EXPECT_EQ(env.list_directory("d").size(), 1U);
    env.lose_power(seed);
    found.insert(env.content("d/f"));
  }
  EXPECT_TRUE(found.contains("old") && found.contains("new") && found.contains("")) << found.size();
}

TEST(FakeEnvTest, DirectoriesMadeDurablyStay) {
  FakeEnv env;
  env.make_directories_durably("a/b/c");
  env.lose_power();
  EXPECT_TRUE(env.is_directory("a/b/c"));
  env.make_directories("a/b/c/d");  // as by a process that was killed
  env.make_directories_durably("a/b/c/d");
  env.lose_power();
  EXPECT_TRUE(env.is_directory("a/b/c/d"));
}

TEST(FakeEnvTest, AFailedAtomicWriteCleansUp) {
  FakeEnv env;
  env.put_file("d/f", "old");
  env.fail_operation(2);
  EXPECT_THROW(env.write_file_atomically("d/f", "new"), Error);
  EXPECT_EQ(env.content("d/f"), "old");
  EXPECT_EQ(env.list_directory("d").size(), 1u);
}

TEST(FakeEnvTest, ProcessFiguresAreTheTests) {
  FakeEnv env;
  env.set_resident_memory({{100}, {60}});
  EXPECT_EQ(env.resident_memory().total, Bytes{100});
  EXPECT_EQ(env.resident_memory().anonymous, Bytes{60});
  EXPECT_EQ(env.core_count(), 2);
  EXPECT_GT(env.process_id(), 0);
  EXPECT_TRUE(env.process_is_alive(env.process_id()));
  EXPECT_FALSE(env.process_is_alive(7));
  env.set_alive(7, true);
  EXPECT_TRUE(env.process_is_alive(7));
  env.set_alive(7, false);
  EXPECT_FALSE(env.process_is_alive(7));
  env.set_alive(7, true);
  env.set_process_id(8);
  env.set_host_name("other");
  EXPECT_EQ(env.process_id(), 8);
  EXPECT_EQ(env.host_name(), "other");
  EXPECT_EQ(env.boot_id(), "boot 1");
  env.lose_power();
  EXPECT_EQ(env.boot_id(), "boot 2");
  EXPECT_FALSE(env.process_is_alive(7));
}

}  // namespace
}  // namespace trireme
