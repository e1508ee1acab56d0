// Links where a store has its checkpoints, on the real file system.

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "base/error.h"
#include "checkpoint/store.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;
using Steps = std::vector<std::int64_t>;

fs::path fresh_directory() {
  std::string pattern = testing::TempDir() + "trireme_store_XXXXXX";
  const char* made = ::mkdtemp(pattern.data());
  return made == nullptr ? fs::path() : fs::path(made);
}

class StoreLinks : public testing::Test {
 protected:
  StoreLinks() {
    put("home/thesis");
    put("home/part-00000.safetensors");  // whatever a file is called
  }
  ~StoreLinks() override {
    std::error_code ignored;
    if (!root_.empty()) fs::remove_all(root_, ignored);
  }
  fs::path at(const std::string& path) const { return root_ / path; }
  void put(const std::string& path) {
    fs::create_directories(at(path).parent_path());
    std::ofstream(at(path)) << "precious";
  }
  void save(std::int64_t step, const std::string& out = "run") {
    Manifest manifest;
    manifest.progress.step = step;
    manifest.run = Json::object({{"out", Json::object({{"directory", out}})}});
    store_.begin(step);
    store_.commit(step, manifest);
  }
  Names all() { return env_.list_directory(at("checkpoints")); }
  void expect_home() const {
    EXPECT_TRUE(fs::exists(at("home/thesis")));
    EXPECT_TRUE(fs::exists(at("home/part-00000.safetensors")));
  }

  const fs::path root_ = fresh_directory();
  Env& env_ = posix_env();
  Store store_{env_, at("checkpoints").string(), 3};
};

TEST_F(StoreLinks, AreRemovedThemselves) {
  for (const int step : {10, 20, 30}) save(step);
  fs::rename(at("checkpoints/step-00000010"), at("moved"));
  put("moved/notes.txt");
  fs::create_symlink(at("moved"), at("checkpoints/step-00000010"));
  EXPECT_EQ(store_.steps(), (Steps{10, 20, 30}));  // what it names can be read
  for (const char* name : {"step-00000040.partial", "step-00000020.inc-000003.partial", "step-00000010.aside"}) {
    fs::create_symlink(at("home"), at("checkpoints") / name);
  }
  EXPECT_EQ(store_.retain({1, 0}).steps, (Steps{10, 20}));
  EXPECT_EQ(all(), (Names{"step-00000010.aside", "step-00000030", "step-00000040.partial"}));
  EXPECT_TRUE(store_.remove_partial().left.empty());
  EXPECT_EQ(all(), (Names{"step-00000010.aside", "step-00000030"}));
  fs::create_symlink(at("home"), at("checkpoints/step-00000050.inc-000003.partial"));
  EXPECT_TRUE(store_.begin(50).left.empty());
  EXPECT_FALSE(fs::is_symlink(store_.partial_path_of(50)));
  store_.abandon(50);
  store_.remove_all();
  EXPECT_EQ(all(), Names{});
  expect_home();
  EXPECT_TRUE(fs::exists(at("moved/notes.txt")));
  EXPECT_TRUE(fs::exists(at("moved/manifest.json")));
}

TEST_F(StoreLinks, AFilesPlaceInACheckpointToo) {
  save(10);
  save(20);
  fs::create_symlink(at("home/thesis"), at("checkpoints/step-00000010/part-00000.safetensors"));
  fs::create_symlink(at("home"), at("checkpoints/step-00000010/part-00001.safetensors"));
  EXPECT_EQ(store_.retain({1, 0}).steps, Steps{10});
  EXPECT_EQ(all(), Names{"step-00000020"});
  expect_home();
}

TEST_F(StoreLinks, ThatNameNothingArePutAside) {
  env_.make_directories(at("checkpoints"));
  fs::create_symlink(at("nowhere"), at("checkpoints/step-00000010"));
  EXPECT_EQ(store_.begin(10).left, Names{"step-00000010.left"});
}

// The directory itself is kept elsewhere, where others may be too.
TEST_F(StoreLinks, ToTheWholeDirectoryAreFollowed) {
  fs::create_directories(at("storage"));
  fs::create_symlink(at("storage"), at("checkpoints"));
  store_.share_with_others([](const Manifest& manifest) {
    const Json* section = manifest.run.find("out");
    return section != nullptr && *section->find("directory") == Json("run");
  });
  save(5, "another");
  for (const int step : {10, 20, 30}) save(step);
  EXPECT_EQ(store_.retain({1, 0}).steps, (Steps{10, 20}));
  EXPECT_EQ(all(), (Names{"step-00000005", "step-00000030"}));
  EXPECT_EQ(store_.remove_all().left, Names{"step-00000005.aside"});
  EXPECT_EQ(all(), Names{"step-00000005.aside"});
  EXPECT_TRUE(fs::is_symlink(at("checkpoints")));
}

}  // namespace
}  // namespace trireme::checkpoint
