#include "base/limit_failure.h"

#include <new>
#include <stdexcept>
#include <system_error>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme {
namespace {

using ::testing::HasSubstr;

std::string said(std::errc code) { return limit_failure(std::system_error(std::make_error_code(code))); }

TEST(LimitFailure, NamesTheLimit) {
  EXPECT_THAT(limit_failure(std::bad_alloc()), HasSubstr("ulimit -v"));
  EXPECT_THAT(said(std::errc::resource_unavailable_try_again), HasSubstr("ulimit -u"));
  EXPECT_THAT(said(std::errc::not_enough_memory), HasSubstr("ulimit -v"));
  EXPECT_THAT(said(std::errc::too_many_files_open), HasSubstr("ulimit -n"));
}

TEST(LimitFailure, IsNoOther) {
  EXPECT_EQ(limit_failure(std::runtime_error("x")), "");
  EXPECT_EQ(said(std::errc::no_space_on_device), "");
  EXPECT_EQ(said(std::errc::broken_pipe), "");
}

}  // namespace
}  // namespace trireme
