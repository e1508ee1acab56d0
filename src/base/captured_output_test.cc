#include "base/captured_output.h"

#include <gtest/gtest.h>

#include "base/child.h"
#include "base/env.h"
#include "base/error.h"

namespace trireme {
namespace {

std::unique_ptr<Child> start(const std::string& script) {
  ChildCommand command{{"sh", "-c", script}, {}, {}};
  command.captured = true;
  return start_child(command);
}

TEST(CapturedOutput, IsHeldBack) {
  const std::unique_ptr<Child> child = start("echo one; echo two >&2; exit 3");
  CapturedOutput output(child->take_output());
  EXPECT_EQ(output.end(), "one\ntwo\n");
  EXPECT_EQ(child->take_output(), -1);
}

TEST(CapturedOutput, IsPassedOnOnceThatIsKnown) {
  testing::internal::CaptureStderr();
  const std::unique_ptr<Child> child = start("echo before; sleep 0.2; echo after");
  CapturedOutput output(child->take_output());
  posix_env().sleep(Seconds{0.05});
  output.pass_on();
  EXPECT_EQ(output.end(), "");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "before\nafter\n");
}

TEST(CapturedOutput, OneThatDoesNotEndIsLeft) {
  const std::unique_ptr<Child> child = start("echo word; exec sleep 60");
  CapturedOutput output(child->take_output());
  EXPECT_EQ(output.end(), "word\n");
}

TEST(FindProgram, AsItWouldBeStarted) {
  EXPECT_TRUE(find_program("sh"));
  EXPECT_TRUE(find_program("/bin/sh"));
  const auto rule_of = [](const std::string& name) { return find_program(name).failure().rule; };
  EXPECT_EQ(rule_of("no-such-program"), "is not in PATH");
  EXPECT_EQ(rule_of("/no/such/program"), "there is no such file");
  EXPECT_EQ(rule_of("/tmp"), "is no file");
  EXPECT_EQ(rule_of("/proc/self/environ"), "is not executable");
  EXPECT_EQ(rule_of(""), "is not in PATH");
}

TEST(ChildVariables, SomeAreLeftOut) {
  ChildCommand command{{"sh", "-c", "env"}, {{"LEFT_NOT", "1"}}, {}};
  command.captured = true;
  command.without = {"PATH", "HOM"};
  const std::unique_ptr<Child> child = start_child(command);
  const std::string text = CapturedOutput(child->take_output()).end();
  EXPECT_EQ(("\n" + text).find("\nHOME="), std::string::npos);
  EXPECT_NE(text.find("LEFT_NOT=1"), std::string::npos);
}

}  // namespace
}  // namespace trireme
