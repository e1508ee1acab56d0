#include "base/error.h"

#include <gtest/gtest.h>

namespace trireme {
namespace {

TEST(Failure, SentenceHasTheFourParts) {
  const Failure failure{"layout.tp", "3", "heads (8) must be divisible by tp", "2, 4"};
  EXPECT_EQ(failure.sentence(), "layout.tp = 3: heads (8) must be divisible by tp; nearest legal: 2, 4");
}

TEST(Failure, EmptyPartsAreLeftOut) {
  EXPECT_EQ((Failure{"run.toml", "", "line 3, column 1: no value", ""}.sentence()),
            "run.toml: line 3, column 1: no value");
  EXPECT_EQ((Failure{"", "", "no layout fits", ""}.sentence()), "no layout fits");
  EXPECT_EQ((Failure{"", "", "", "2"}.sentence()), "nearest legal: 2");
  EXPECT_EQ(Failure{}.sentence(), "");
}

TEST(Failure, AdviceIsNotCalledALegalValue) {
  EXPECT_EQ((Failure{"a", "b", "c", "use --x instead"}.sentence()), "a = b: c; use --x instead");
  EXPECT_EQ((Failure{"a", "b", "c", "80 GB"}.sentence()), "a = b: c; nearest legal: 80 GB");
  EXPECT_EQ((Failure{"a", "b", "c", "tensor, none"}.sentence()), "a = b: c; nearest legal: tensor, none");
}

TEST(ErrorTest, CarriesItsParts) {
  const Error error(ExitCode::kStorage, "checkpoint", "write shard 3", "no space left", "free space");
  EXPECT_EQ(error.code(), ExitCode::kStorage);
  EXPECT_EQ(error.component(), "checkpoint");
  EXPECT_EQ(error.hint(), "free space");
  EXPECT_STREQ(error.what(), "checkpoint: write shard 3: no space left");
}

TEST(ErrorTest, OfAFailureSaysItsSentence) {
  const Error error(Failure{"layout.tp", "3", "too odd", "2, 4", ExitCode::kDoesNotFit});
  EXPECT_EQ(error.code(), ExitCode::kDoesNotFit);
  EXPECT_STREQ(error.what(), "layout.tp = 3: too odd; nearest legal: 2, 4");
}

TEST(ResultTest, HoldsAValueOrAFailure) {
  Result<std::string> good = std::string("yes");
  ASSERT_TRUE(good.ok());
  EXPECT_EQ(*good, "yes");
  EXPECT_EQ(good->size(), 3u);
  EXPECT_EQ(std::move(good).or_throw(), "yes");

  Result<std::string> bad = Failure{"x", "1", "must be 2", ""};
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.failure().sentence(), "x = 1: must be 2");
  EXPECT_THROW(std::move(bad).or_throw(), Error);
}

TEST(ResultTest, ReadingTheWrongSideIsABrokenInvariant) {
  const Result<int> good = 1;
  const Result<int> bad = Failure{"x", "1", "must be 2", ""};
  EXPECT_THROW(static_cast<void>(good.failure()), InternalError);
  try {
    static_cast<void>(bad.value());
    FAIL() << "no throw";
  } catch (const InternalError& error) {
    EXPECT_NE(std::string(error.what()).find("x = 1: must be 2"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace trireme
