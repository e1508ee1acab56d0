#include "base/stop_signals.h"

#include <signal.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "base/env.h"

namespace trireme {
namespace {

TEST(StopSignals, WaitUntilItIsSaidWhatBecomesOfThem) {
  hold_stop_signals();
  for (const int signal : {SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU, SIGINT, SIGQUIT}) ::raise(signal);
  EXPECT_EQ(stop_counts().preempted, 0);
  catch_supervisor_signals();
  EXPECT_EQ(stop_counts().preempted, 4);
  EXPECT_EQ(stop_counts().user, 2);
  ::raise(SIGHUP);
  EXPECT_EQ(stop_counts().user, 3);
  ignore_stop_signals();
  ::raise(SIGUSR2);
  EXPECT_EQ(stop_counts().preempted, 4);
}

TEST(StopSignals, AProcessThatIsToOutliveItsTerminalDoes) {
  ::signal(SIGHUP, SIG_IGN);  // as nohup does
  catch_supervisor_signals();
  const int before = stop_counts().user;
  ::raise(SIGHUP);
  EXPECT_EQ(stop_counts().user, before);
  ignore_stop_signals();
}

TEST(StopSignals, OfAProcessThatComputesRunNoHandler) {
  catch_stop_signals("");
  EXPECT_FALSE(stop_requested());
  const int before = stop_counts().preempted;
  for (int i = 0; i < 2; ++i) ::kill(::getpid(), SIGUSR2);  // one request
  for (int i = 0; i < 500 && !stop_requested(); ++i) posix_env().sleep(Seconds{0.01});
  EXPECT_TRUE(stop_requested());
  EXPECT_GT(stop_counts().preempted, before);
  struct sigaction action = {};
  ASSERT_EQ(::sigaction(SIGUSR2, nullptr, &action), 0);
  EXPECT_TRUE(action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN);
}

}  // namespace
}  // namespace trireme
