#include "base/env.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file_changed.h"
#include "base/read_once.h"

namespace trireme {
namespace {

// A fresh directory of the real file system, removed afterwards.
class PosixEnvTest : public testing::Test {
 protected:
  PosixEnvTest() {
    std::string pattern = testing::TempDir() + "trireme_env_XXXXXX";
    const char* made = ::mkdtemp(pattern.data());
    if (made != nullptr) directory_ = made;
  }
  ~PosixEnvTest() override {
    std::error_code ignored;
    if (!directory_.empty()) std::filesystem::remove_all(directory_, ignored);
  }
  std::string path(const std::string& name) const { return join_path(directory_, name); }
  void write(const std::string& name, std::string_view content) {
    const auto writer = env_.create_file(path(name));
    writer->write_text(content);
    writer->close();
  }

  Env& env_ = posix_env();
  std::string directory_;
};

TEST_F(PosixEnvTest, PipesAreReadOnce) {
  write("file", "text");
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  EXPECT_FALSE(is_read_once(env_, path("file")));
  EXPECT_FALSE(is_read_once(env_, path("absent")));
  EXPECT_FALSE(is_read_once(env_, directory_));
  EXPECT_TRUE(is_read_once(env_, path("fifo")));
  EXPECT_TRUE(is_read_once(env_, "/dev/null"));
  EXPECT_TRUE(is_read_once(env_, "/proc/self/exe"));
}

template <class Body>
Error error_of(Body body) {
  try {
    body();
  } catch (const Error& error) {
    return error;
  }
  return Error(ExitCode::kDone, "", "", "no error");
}

// What is no regular file is refused by name, at once: an open of a FIFO would wait for a writer.
TEST_F(PosixEnvTest, WhatIsNoRegularFileIsRefusedByName) {
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  const std::string socket_path = path("s");
  ASSERT_LT(socket_path.size(), sizeof address.sun_path);
  std::memcpy(address.sun_path, socket_path.c_str(), socket_path.size());
  const int listener = ::socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(::bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::symlink(path("fifo").c_str(), path("link").c_str()), 0);
  const std::pair<std::string, std::string> kinds[] = {{path("fifo"), "is a FIFO, not a regular file"},
                                                       {path("link"), "is a FIFO, not a regular file"},
                                                       {path("s"), "is a socket, not a regular file"},
                                                       {"/dev/zero", "is a device, not a regular file"},
                                                       {directory_, "Is a directory"}};
  for (const auto& [name, words] : kinds) {
    const std::string& file = name;
    for (const Error& error : {error_of([&] { env_.read_file(file); }), error_of([&] { env_.open_reader(file); })}) {
      EXPECT_EQ(error.code(), ExitCode::kUsage);
      EXPECT_EQ(std::string(error.what()), "files: open " + file + ": " + words);
    }
  }
  ::close(listener);
}

// As a shell gives a command's output for a file's name.
TEST_F(PosixEnvTest, AStreamOfOnesOwnIsReadToItsEnd) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const std::string text(100'000, 'x');
  const pid_t child = ::fork();
  if (child == 0) {  // later, and in pieces
    ::usleep(50'000);
    for (std::size_t at = 0; at < text.size();) {
      const ssize_t put = ::write(ends[1], text.data() + at, text.size() - at);
      if (put < 0) ::_exit(1);
      at += static_cast<std::size_t>(put);
    }
    ::_exit(0);
  }
  ::close(ends[1]);
  EXPECT_TRUE(env_.read_file("/dev/fd/" + std::to_string(ends[0])) == text);
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST_F(PosixEnvTest, AFileThatChangesWhileItIsReadIsTold) {
  for (const std::string& after : {std::string(), std::string("01234567"), std::string("0123456789abc")}) {
    write("f", "0123456789");
    const auto reader = env_.open_reader(path("f"));
    std::vector<std::byte> bytes(10);
    EXPECT_NO_THROW(reader->read_at(0, bytes));
    EXPECT_NO_THROW(reader->read_at(0, bytes));
    write("f", after);
    try {
      reader->read_at(0, bytes);
      FAIL() << "was read";
    } catch (const FileChanged& changed) {
      EXPECT_EQ(changed.change(), "it had 10 bytes when it was opened, and has " + std::to_string(after.size()));
      EXPECT_NE(std::string(changed.what()).find(path("f")), std::string::npos);
    }
  }
  write("f", "0123456789");
  const auto reader = env_.open_reader(path("f"));
  std::vector<std::byte> byte(1);
  const timespec times[2] = {{.tv_sec = 1'000'000, .tv_nsec = 0}, {.tv_sec = 1'000'000, .tv_nsec = 5}};
  ASSERT_EQ(::utimensat(AT_FDCWD, path("f").c_str(), times, 0), 0);
  EXPECT_THROW(reader->read_at(0, byte), FileChanged);
  // One that takes its name is another file.
  const auto held = env_.open_reader(path("f"));
  env_.write_file_atomically(path("f"), "new");
  EXPECT_NO_THROW(held->read_at(9, byte));
}

TEST_F(PosixEnvTest, WritesReadsAndListsFiles) {
  write("b", "hello");
  write("a", "");
  EXPECT_EQ(env_.read_file(path("b")), "hello");
  EXPECT_EQ(env_.read_file(path("a")), "");
  EXPECT_EQ(env_.file_size(path("b")), 5);
  EXPECT_TRUE(env_.exists(path("b")));
  EXPECT_FALSE(env_.exists(path("c")));
  EXPECT_TRUE(env_.is_directory(directory_));
  EXPECT_FALSE(env_.is_directory(path("b")));
  EXPECT_EQ(env_.list_directory(directory_), (std::vector<std::string>{"a", "b"}));
  env_.remove_file(path("a"));
  env_.rename(path("b"), path("c"));
  EXPECT_EQ(env_.list_directory(directory_), (std::vector<std::string>{"c"}));
}

TEST_F(PosixEnvTest, TwoPathsOfOneThingHaveOneRealPath) {
  env_.make_directories(path("a/b"));
  std::filesystem::create_directory_symlink(path("a"), path("link"));
  EXPECT_EQ(env_.real_path(path("link/./b/../b/")), env_.real_path(path("a/b")));
  EXPECT_NE(env_.real_path(path("a")), env_.real_path(path("a/b")));
  EXPECT_EQ(error_of([&] { env_.real_path(path("nothing")); }).code(), ExitCode::kUsage);
}

TEST_F(PosixEnvTest, FreeSpaceAndReservations) {
  EXPECT_GT(env_.free_space(directory_), Bytes{0});
  const auto writer = env_.create_file(path("reserved"));
  writer->reserve(Bytes{1 << 20});
  writer->write_text("few");
  writer->close();
  EXPECT_EQ(env_.file_size(path("reserved")), 3);
  EXPECT_EQ(error_of([&] { env_.remove_directory(directory_); }).component(), "files");  // it is not empty
  env_.make_directories(path("empty"));
  env_.remove_directory(path("empty"));
  EXPECT_FALSE(env_.exists(path("empty")));
}

TEST_F(PosixEnvTest, ReadsFilesLargerThanAPiece) {
  std::string content(300000, 'x');
  for (std::size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * 31);
  write("large", content);
  EXPECT_TRUE(env_.read_file(path("large")) == content);
}

TEST_F(PosixEnvTest, ReadsByPosition) {
  write("f", "0123456789");
  const auto reader = env_.open_reader(path("f"));
  EXPECT_EQ(reader->size(), 10);
  std::vector<std::byte> out(3);
  reader->read_at(4, out);
  EXPECT_EQ(std::memcmp(out.data(), "456", 3), 0);
  const Error error = error_of([&] { reader->read_at(8, out); });
  EXPECT_EQ(error.code(), ExitCode::kStorage);
  EXPECT_NE(std::string(error.what()).find("ends at byte 10, 1 more"), std::string::npos) << error.what();
}

TEST_F(PosixEnvTest, WritersAppendAndWriteAtAPosition) {
  {
    const auto writer = env_.create_file(path("f"));
    writer->write_text("hello world");
    writer->write_at(0, std::as_bytes(std::span("J", 1)));
    writer->write_text("!");
    writer->sync();
    writer->close();
    writer->close();  // closing twice is fine
  }
  {
    const auto writer = env_.append_file(path("f"));
    writer->write_text("?");
  }
  EXPECT_EQ(env_.read_file(path("f")), "Jello world!?");
}

TEST_F(PosixEnvTest, MakesDirectoriesWithTheirParents) {
  env_.make_directories(path("a/b/c"));
  EXPECT_TRUE(env_.is_directory(path("a/b/c")));
  env_.make_directories(path("a/b/c/"));
  env_.make_directories("/");
  env_.sync_directory(path("a/b"));
  write("file", "");
  EXPECT_THROW(env_.make_directories(path("file/x")), Error);
  EXPECT_THROW(env_.make_directories(path("file")), Error);
}

TEST_F(PosixEnvTest, ErrorsNamePathAndReason) {
  const Error error = error_of([&] { env_.read_file(path("absent")); });
  EXPECT_EQ(error.code(), ExitCode::kUsage);
  EXPECT_EQ(error.component(), "files");
  EXPECT_EQ(std::string(error.what()), "files: open " + path("absent") + ": No such file or directory");
  EXPECT_EQ(error.hint(), "check the path");
}

TEST_F(PosixEnvTest, EachOperationFailsWithAnError) {
  const std::string absent = path("absent/file");
  EXPECT_THROW(env_.file_size(absent), Error);
  EXPECT_THROW(env_.open_reader(absent), Error);
  EXPECT_THROW(env_.create_file(absent), Error);
  EXPECT_THROW(env_.append_file(absent), Error);
  EXPECT_THROW(env_.rename(absent, path("x")), Error);
  EXPECT_THROW(env_.remove_file(absent), Error);
  EXPECT_THROW(env_.sync_directory(absent), Error);
  EXPECT_THROW(env_.list_directory(absent), Error);
  EXPECT_THROW(env_.read_file(directory_), Error);
  EXPECT_THROW(env_.open_reader(directory_), Error);
  EXPECT_THROW(env_.create_file(directory_), Error);
}

TEST_F(PosixEnvTest, AFullDeviceIsAStorageFailure) {
  if (!env_.exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  const auto writer = env_.create_file("/dev/full");
  const Error error = error_of([&] { writer->write_text("x"); });
  EXPECT_EQ(error.code(), ExitCode::kStorage);
  EXPECT_NE(std::string(error.what()).find("No space left on device"), std::string::npos) << error.what();
  EXPECT_NE(error.hint().find("free space"), std::string::npos);
}

TEST_F(PosixEnvTest, AtomicWriteReplacesAndLeavesNothingBehind) {
  env_.write_file_atomically(path("f"), "old");
  env_.write_file_atomically(path("f"), "new");
  EXPECT_EQ(env_.read_file(path("f")), "new");
  EXPECT_EQ(env_.list_directory(directory_).size(), 1u);
}

TEST_F(PosixEnvTest, AnAtomicFileAppearsWithItsCommit) {
  {
    AtomicFile file(env_, path("f"));
    file.writer().write_text("never");
  }
  EXPECT_TRUE(env_.list_directory(directory_).empty());
  AtomicFile file(env_, path("f"));
  file.writer().write_text("now");
  EXPECT_FALSE(env_.exists(path("f")));
  file.commit();
  EXPECT_EQ(env_.read_file(path("f")), "now");
  EXPECT_EQ(env_.list_directory(directory_).size(), 1u);
  EXPECT_THROW(file.commit(), InternalError);
}

TEST_F(PosixEnvTest, TheClockMoves) {
  const Seconds before = env_.now();
  env_.sleep({0.002});
  EXPECT_GE(env_.now().count - before.count, 0.002);
  env_.sleep({-1});
  const std::string time = env_.wall_time();
  ASSERT_EQ(time.size(), 20u) << time;
  EXPECT_EQ(time[10], 'T');
  EXPECT_EQ(time.back(), 'Z');
}

TEST_F(PosixEnvTest, ResidentMemoryGrowsWithWhatIsTouched) {
  const ResidentMemory before = env_.resident_memory();
  constexpr std::size_t kSize = 64 << 20;
  std::vector<char> touched(kSize, 1);
  const ResidentMemory after = env_.resident_memory();
  EXPECT_GT(after.total.count, 0);
  EXPECT_LE(after.anonymous, after.total);
  EXPECT_GE((after.anonymous - before.anonymous).count, static_cast<std::int64_t>(kSize / 2));
  EXPECT_EQ(touched[kSize - 1], 1);
}

TEST_F(PosixEnvTest, ProcessFigures) {
  EXPECT_GT(env_.process_id(), 0);
  EXPECT_GE(env_.core_count(), 1);
  EXPECT_FALSE(env_.host_name().empty());
  EXPECT_EQ(env_.boot_id().size(), 36U);
  EXPECT_EQ(env_.boot_id(), env_.boot_id());
}

TEST_F(PosixEnvTest, KnowsWhichProcessesAreAlive) {
  EXPECT_TRUE(env_.process_is_alive(env_.process_id()));
  EXPECT_TRUE(env_.process_is_alive(1));  // another user's too
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ASSERT_GT(child, 0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_FALSE(env_.process_is_alive(child));
  for (const std::int64_t nobody : {std::int64_t{0}, std::int64_t{-1}, std::int64_t{1} << 40}) {
    EXPECT_FALSE(env_.process_is_alive(nobody)) << nobody;
  }
}

TEST_F(PosixEnvTest, ReplacesAFile) {
  write("f", "old");
  env_.replace_file(path("f"), "new");
  EXPECT_EQ(env_.read_file(path("f")), "new");
  EXPECT_EQ(env_.list_directory(directory_), std::vector<std::string>{"f"});
}

TEST(Paths, JoinAndSplit) {
  EXPECT_EQ(join_path("a", "b"), "a/b");
  EXPECT_EQ(join_path("a/", "b"), "a/b");
  EXPECT_EQ(join_path("", "b"), "b");
  EXPECT_EQ(join_path("/", "b"), "/b");
  EXPECT_EQ(base_name("a/b/c"), "c");
  EXPECT_EQ(base_name("a/b/"), "b");
  EXPECT_EQ(base_name("c"), "c");
  EXPECT_EQ(base_name("/"), "/");
  EXPECT_EQ(directory_name("a/b/c"), "a/b");
  EXPECT_EQ(directory_name("a/b/"), "a");
  EXPECT_EQ(directory_name("a//b"), "a");
  EXPECT_EQ(directory_name("c"), ".");
  EXPECT_EQ(directory_name("/c"), "/");
  EXPECT_EQ(directory_name("/"), "/");
}

}  // namespace
}  // namespace trireme
