#include "base/exception_code.h"

#include <cerrno>
#include <new>
#include <system_error>

#include <gtest/gtest.h>

#include "base/error.h"

namespace trireme {
namespace {

TEST(ExceptionCode, IsTheErrorsOwnOrSaysWhatTheSystemLacked) {
  EXPECT_EQ(code_of(Error(ExitCode::kStorage, "files", "write", "no")), ExitCode::kStorage);
  EXPECT_EQ(code_of(std::bad_alloc()), ExitCode::kDoesNotFit);
  EXPECT_EQ(code_of(std::system_error(EAGAIN, std::generic_category(), "thread")), ExitCode::kDoesNotFit);
  EXPECT_EQ(code_of(std::system_error(ENOMEM, std::generic_category())), ExitCode::kDoesNotFit);
  EXPECT_EQ(code_of(std::system_error(EINVAL, std::generic_category())), ExitCode::kInternal);
  EXPECT_EQ(code_of(InternalError("broken")), ExitCode::kInternal);
}

}  // namespace
}  // namespace trireme
