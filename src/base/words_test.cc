#include "base/words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Words, PartsBetweenCharacters) {
  EXPECT_THAT(split("a:bc:", ':'), ElementsAre("a", "bc", ""));
  EXPECT_THAT(split("::", ':'), ElementsAre("", "", ""));
  EXPECT_THAT(split("abc", ':'), ElementsAre("abc"));
  EXPECT_THAT(split("", ':'), ElementsAre(""));
}

TEST(Words, BetweenBlanks) {
  EXPECT_THAT(words_of("  a\tbc \r"), ElementsAre("a", "bc"));
  EXPECT_THAT(words_of("a"), ElementsAre("a"));
  EXPECT_THAT(words_of(" \t "), IsEmpty());
  EXPECT_THAT(words_of(""), IsEmpty());
}

TEST(Words, AreViewsOfTheText) {
  const std::string_view text = "ab cd";
  EXPECT_EQ(words_of(text)[1].data(), text.data() + 3);
  EXPECT_EQ(split(text, ' ')[1].data(), text.data() + 3);
}

}  // namespace
}  // namespace trireme
