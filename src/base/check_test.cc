#include "base/check.h"

#include <string>

#include <gtest/gtest.h>

#include "base/error.h"

namespace trireme {
namespace {

template <class Body>
std::string message_of(Body body) {
  try {
    body();
  } catch (const InternalError& error) {
    return error.what();
  }
  return "no throw";
}

TEST(Check, TrueConditionsPass) {
  EXPECT_NO_THROW(TRIREME_CHECK(1 + 1 == 2));
  EXPECT_NO_THROW(TRIREME_CHECK_EQ(2, 2));
  EXPECT_NO_THROW(TRIREME_CHECK_NE(1, 2));
  EXPECT_NO_THROW(TRIREME_CHECK_LT(1, 2));
  EXPECT_NO_THROW(TRIREME_CHECK_LE(2, 2));
  EXPECT_NO_THROW(TRIREME_CHECK_GT(3, 2));
  EXPECT_NO_THROW(TRIREME_CHECK_GE(2, 2));
}

TEST(Check, MessageNamesFileExpressionAndText) {
  const bool ready = false;
  const std::string message = message_of([&] { TRIREME_CHECK(ready, "unit {} of {}", 3, "layer"); });
  EXPECT_NE(message.find("check_test.cc:"), std::string::npos) << message;
  EXPECT_NE(message.find("check failed: ready: unit 3 of layer"), std::string::npos) << message;
}

TEST(Check, ComparisonsPrintBothOperands) {
  const int rows = 4;
  const int tokens = 5;
  const std::string message = message_of([&] { TRIREME_CHECK_EQ(rows, tokens); });
  EXPECT_NE(message.find("rows == tokens (4 against 5)"), std::string::npos) << message;
  EXPECT_THROW(TRIREME_CHECK_NE(1, 1), InternalError);
  EXPECT_THROW(TRIREME_CHECK_LT(2, 2), InternalError);
  EXPECT_THROW(TRIREME_CHECK_LE(3, 2), InternalError);
  EXPECT_THROW(TRIREME_CHECK_GT(2, 2), InternalError);
  EXPECT_THROW(TRIREME_CHECK_GE(1, 2), InternalError);
}

TEST(Check, OperandsAreEvaluatedOnce) {
  int calls = 0;
  TRIREME_CHECK_EQ(++calls, 1);
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace trireme
