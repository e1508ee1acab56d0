#include "base/ledger.h"

#include <set>
#include <string>

#include <gtest/gtest.h>

#include "base/error.h"

namespace trireme {
namespace {

constexpr MemoryClass kWeights = MemoryClass::kWeights;
constexpr MemoryClass kWorkspace = MemoryClass::kWorkspace;

TEST(MemoryClassTest, NamesAreDistinctAndKeysAreSnakeCase) {
  std::set<std::string_view> names;
  for (int i = 0; i < kMemoryClassCount; ++i) {
    const auto memory_class = static_cast<MemoryClass>(i);
    names.insert(memory_class_name(memory_class));
    std::string key(memory_class_name(memory_class));
    for (char& c : key) c = c == ' ' ? '_' : c;
    EXPECT_EQ(memory_class_key(memory_class), key);
  }
  EXPECT_EQ(names.size(), static_cast<std::size_t>(kMemoryClassCount));
  EXPECT_EQ(memory_class_name(MemoryClass::kSavedActivations), "saved activations");
  EXPECT_THROW(memory_class_name(static_cast<MemoryClass>(kMemoryClassCount)), InternalError);
}

TEST(LedgerTest, BookingsAreRounded) {
  Ledger ledger;
  ledger.book(kWeights, {100});
  EXPECT_EQ(ledger.current(kWeights), Bytes{128});
  ledger.book(kWeights, {0});
  EXPECT_EQ(ledger.current_sum(), Bytes{128});
  ledger.release(kWeights, {100});
  EXPECT_EQ(ledger.current_sum(), Bytes{0});
  EXPECT_EQ(ledger.peak(kWeights), Bytes{128});
}

TEST(LedgerTest, PeaksOfClassesAndOfTheSumDoNotCoincide) {
  Ledger ledger;
  ledger.book(kWeights, {640});
  ledger.book(kWorkspace, {64});
  ledger.release(kWeights, {640});
  ledger.book(kWorkspace, {320});
  EXPECT_EQ(ledger.peak(kWeights), Bytes{640});
  EXPECT_EQ(ledger.peak(kWorkspace), Bytes{384});
  EXPECT_EQ(ledger.peak_sum(), Bytes{704});
  EXPECT_EQ(ledger.at_peak(kWeights), Bytes{640});
  EXPECT_EQ(ledger.at_peak(kWorkspace), Bytes{64});
}

TEST(LedgerTest, ReleasingMoreThanIsBookedIsABrokenInvariant) {
  Ledger ledger;
  ledger.book(kWeights, {64});
  EXPECT_THROW(ledger.release(kWeights, {65}), InternalError);
  EXPECT_THROW(ledger.release(kWorkspace, {1}), InternalError);
  EXPECT_THROW(ledger.book(kWeights, {-1}), InternalError);
  EXPECT_EQ(ledger.current(kWeights), Bytes{64});
}

TEST(LedgerTest, FirstDifferenceNamesTheClassAndBothFigures) {
  Ledger predicted;
  Ledger counted;
  EXPECT_EQ(Ledger::first_difference(predicted, counted), "");
  predicted.book(kWorkspace, {1024});
  counted.book(kWorkspace, {1088});
  EXPECT_EQ(Ledger::first_difference(predicted, counted),
            "peak of workspace: predicted 1,024 bytes, counted 1,088 bytes (+64)");
}

TEST(LedgerTest, FirstDifferenceSeesThePeakOfTheSum) {
  Ledger predicted;
  predicted.book(kWeights, {64});
  predicted.book(kWorkspace, {64});
  Ledger counted;
  counted.book(kWeights, {64});
  counted.release(kWeights, {64});
  counted.book(kWorkspace, {64});
  EXPECT_EQ(Ledger::first_difference(predicted, counted),
            "peak of the sum: predicted 128 bytes, counted 64 bytes (-64)");
}

}  // namespace
}  // namespace trireme
