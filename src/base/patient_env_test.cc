#include "base/patient_env.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/fake_env.h"

namespace trireme {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A disk that is mended, or broken, after so many sleeps.
class ChangingEnv : public FakeEnv {
 public:
  void sleep(Seconds duration) override {
    FakeEnv::sleep(duration);
    if (--sleeps_ == 0) change_();
  }
  void after_sleeps(int sleeps, std::function<void()> change) {
    sleeps_ = sleeps;
    change_ = std::move(change);
  }

 private:
  int sleeps_ = -1;
  std::function<void()> change_;
};

class PatientEnvTest : public testing::Test {
 protected:
  PatientEnvTest() { env_.put_file("run/metrics", "old\n"); }

  void fill(std::int64_t left) {
    constexpr std::int64_t kLarge = std::int64_t{1} << 40;
    env_.limit_bytes(kLarge);
    env_.limit_bytes(kLarge - env_.free_space(".").count + left);
  }
  template <class Act>
  Error error_of(const Act& act) {
    try {
      act();
    } catch (const Error& error) {
      return error;
    }
    return {ExitCode::kDone, "", "", "no error"};
  }
  std::string logged() const {
    std::string text;
    for (const auto& [level, line] : log_.lines()) text += line + "\n";
    return text;
  }

  ChangingEnv env_;
  MemoryLog log_;
  PatientEnv patient_{env_, log_, "run"};
};

TEST_F(PatientEnvTest, AWriteGoesOnWhereTheFullDiskStoppedIt) {
  const std::unique_ptr<Writer> file = patient_.append_file("run/metrics");
  fill(3);
  env_.after_sleeps(10, [&] { env_.limit_bytes(-1); });
  file->write_text("a line\n");
  file->write_text("another\n");
  EXPECT_EQ(env_.content("run/metrics"), "old\na line\nanother\n");
  EXPECT_EQ(log_.lines().size(), 2U) << logged();
  EXPECT_THAT(logged(), AllOf(HasSubstr("files: write run/metrics: No space left on device: this may pass"),
                              HasSubstr("it has passed")));
}

TEST_F(PatientEnvTest, WritesAtAPlaceAndReservationsWaitToo) {
  const std::unique_ptr<Writer> file = patient_.create_file("elsewhere");
  fill(4);
  env_.after_sleeps(2, [&] { env_.limit_bytes(-1); });
  file->reserve(Bytes{20});
  file->write_at(0, std::as_bytes(std::span("0123456789", 10)));
  fill(2);
  env_.after_sleeps(2, [&] { env_.limit_bytes(-1); });
  file->write_at(8, std::as_bytes(std::span("abcdefghijklmnopqrstuvwxyz", 26)));
  EXPECT_EQ(env_.content("elsewhere"), "01234567abcdefghijklmnopqrstuvwxyz");
}

TEST_F(PatientEnvTest, AWaitHasAnEnd) {
  const std::unique_ptr<Writer> file = patient_.append_file("run/metrics");
  fill(3);
  const Seconds begun = env_.now();
  const Error error = error_of([&] { file->write_text("a line\n"); });
  EXPECT_EQ(error.code(), ExitCode::kStorage);
  EXPECT_STREQ(error.what(), "files: write run/metrics: No space left on device, and still so after 30.00 s");
  EXPECT_THAT(error.hint(), HasSubstr("free space"));
  EXPECT_NEAR(env_.now().count - begun.count, kDiskPatience.count, 1);
  EXPECT_EQ(log_.lines().size(), 1U) << logged();
}

TEST_F(PatientEnvTest, ADirectoryThatIsAwayIsWaitedForOnceItIsWatched) {
  EXPECT_FALSE(patient_.exists("run/other"));
  env_.rename("run", "away");
  const Error before = error_of([&] { patient_.read_file("run/metrics"); });
  EXPECT_EQ(before.code(), ExitCode::kUsage);
  EXPECT_FALSE(patient_.exists("run/metrics"));
  EXPECT_TRUE(log_.lines().empty());
  patient_.watch();
  const auto come_back = [&] {
    if (!env_.exists("run")) env_.rename("away", "run");
  };
  const std::function<void()> acts[] = {[&] { EXPECT_EQ(patient_.read_file("run/metrics"), "old\n"); },
                                        [&] { EXPECT_TRUE(patient_.exists("run/metrics")); },
                                        [&] { EXPECT_TRUE(patient_.is_directory("run")); },
                                        [&] { EXPECT_EQ(patient_.kind_of("run/metrics"), EntryKind::kFile); },
                                        [&] { patient_.make_directories("run/checkpoints/step-1"); },
                                        [&] { patient_.create_file("run/new"); },
                                        [&] { patient_.list_directory("run"); },
                                        [&] { patient_.rename("run/new", "run/newer"); },
                                        [&] { patient_.remove_file("run/newer"); },
                                        [&] { patient_.sync_directory("run"); },
                                        [&] { patient_.free_space("run"); },
                                        [&] { patient_.remove_tree("run/checkpoints"); }};
  for (const auto& act : acts) {
    if (env_.exists("run")) env_.rename("run", "away");
    env_.after_sleeps(5, come_back);
    act();
    EXPECT_FALSE(env_.exists("away"));
  }
  EXPECT_EQ(env_.list_directory("run"), std::vector<std::string>{"metrics"});
}

// What is not there while the directory is was removed, or never was.
TEST_F(PatientEnvTest, AFileThatIsNotThereIsNotWaitedFor) {
  patient_.watch();
  const Seconds begun = env_.now();
  EXPECT_FALSE(patient_.exists("run/other"));
  EXPECT_EQ(error_of([&] { patient_.read_file("run/other"); }).code(), ExitCode::kUsage);
  EXPECT_EQ(error_of([&] { patient_.read_file("elsewhere/other"); }).code(), ExitCode::kUsage);
  EXPECT_EQ(env_.now().count, begun.count);
  env_.fail_operation(1);
  EXPECT_THAT(error_of([&] { patient_.read_file("run/metrics"); }).what(), HasSubstr("Input/output error"));
  EXPECT_TRUE(log_.lines().empty());
}

TEST_F(PatientEnvTest, ADirectoryThatStaysAwayIsAFailureOfStorageAndIsNotMadeAnew) {
  patient_.watch();
  env_.rename("run", "away");
  const Error error = error_of([&] { patient_.make_directories("run/checkpoints"); });
  EXPECT_EQ(error.code(), ExitCode::kStorage);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("run/checkpoints: No such file or directory, and still so after 30.00 s")));
  EXPECT_FALSE(env_.exists("run"));
}

}  // namespace
}  // namespace trireme
