#include "base/posix_remove.h"

#include <sys/mount.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "base/env.h"
#include "base/error.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

class PosixRemove : public testing::Test {
 protected:
  PosixRemove() {
    std::string pattern = testing::TempDir() + "trireme_remove_XXXXXX";
    if (const char* made = ::mkdtemp(pattern.data())) root_ = made;
    put("home/deep/thesis");
    put("home/top");
  }
  ~PosixRemove() override {
    std::error_code ignored;
    if (!root_.empty()) fs::remove_all(root_, ignored);
  }
  fs::path at(const std::string& path) const { return root_ / path; }
  void put(const std::string& path) {
    fs::create_directories(at(path).parent_path());
    std::ofstream(at(path)) << "precious";
  }
  void link(const std::string& to, const std::string& path) { fs::create_symlink(at(to), at(path)); }
  void expect_home() const {
    EXPECT_TRUE(fs::exists(at("home/deep/thesis")));
    EXPECT_TRUE(fs::exists(at("home/top")));
  }

  fs::path root_;
};

const auto kAll = [](const std::string&) { return true; };

TEST_F(PosixRemove, ATreeGoesAndWhatItsLinksNameStays) {
  put("run/a/b/c");
  put("run/d");
  link("home", "run/a/home");
  link("home/top", "run/top");
  link("nowhere", "run/dangling");
  posix_remove_tree(at("run"));
  EXPECT_FALSE(fs::exists(at("run")));
  expect_home();
}

TEST_F(PosixRemove, ALinkIsRemovedItself) {
  for (const char* to : {"home", "home/top", "nowhere"}) {
    link(to, "link");
    posix_remove_tree(at("link"));
    EXPECT_FALSE(fs::is_symlink(at("link"))) << to;
    link(to, "link");
    EXPECT_EQ(posix_remove_owned(at("link"), kAll), Names{});
    EXPECT_FALSE(fs::is_symlink(at("link"))) << to;
    expect_home();
  }
  link("home", "link");
  posix_remove_tree(at("link").string() + "/");  // a slash at the end names no other thing
  EXPECT_FALSE(fs::is_symlink(at("link")));
  expect_home();
}

TEST_F(PosixRemove, NothingThereIsNothingToDo) {
  EXPECT_NO_THROW(posix_remove_tree(at("nothing")));
  EXPECT_NO_THROW(posix_remove_tree(at("nothing/below")));
  EXPECT_EQ(posix_remove_owned(at("nothing"), kAll), Names{});
}

TEST_F(PosixRemove, OwnedFilesGoAndTheDirectoryWithThem) {
  put("run/one");
  put("run/two");
  link("home/top", "run/link");
  EXPECT_EQ(posix_remove_owned(at("run"), kAll), Names{});
  EXPECT_FALSE(fs::exists(at("run")));
  expect_home();
}

TEST_F(PosixRemove, WhatIsNotOwnedStays) {
  put("run/one");
  put("run/notes.txt");
  put("run/inner/one");
  link("home", "run/home");
  EXPECT_EQ(posix_remove_owned(at("run"), [](const std::string& name) { return name == "one" || name == "inner"; }),
            (Names{"home", "inner", "notes.txt"}));
  EXPECT_FALSE(fs::exists(at("run/one")));
  EXPECT_TRUE(fs::exists(at("run/inner/one")));
  EXPECT_TRUE(fs::exists(at("run/notes.txt")));
  expect_home();
}

// A link on the way to a directory is how its user keeps it elsewhere.
TEST_F(PosixRemove, LinksOnTheWayAreFollowed) {
  put("storage/step/one");
  link("storage", "checkpoints");
  EXPECT_EQ(posix_remove_owned(at("checkpoints/step"), kAll), Names{});
  EXPECT_FALSE(fs::exists(at("storage/step")));
  EXPECT_TRUE(fs::exists(at("storage")));
}

TEST_F(PosixRemove, WhatIsMountedInATreeIsNotEmptied) {
  fs::create_directories(at("run/mounted"));
  if (::mount(at("home").c_str(), at("run/mounted").c_str(), nullptr, MS_BIND, nullptr) != 0) {
    GTEST_SKIP() << "may not mount";
  }
  EXPECT_THROW(posix_remove_tree(at("run")), Error);
  EXPECT_THROW(posix_remove_owned(at("run/mounted"), kAll), Error);
  ::umount(at("run/mounted").c_str());
  expect_home();
}

}  // namespace
}  // namespace trireme
