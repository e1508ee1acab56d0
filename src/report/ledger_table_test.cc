#include "report/ledger_table.h"

#include <gtest/gtest.h>

namespace trireme::report {
namespace {

Ledger example() {
  Ledger ledger;
  ledger.book(MemoryClass::kWeights, Bytes{6400});
  ledger.book(MemoryClass::kSavedActivations, Bytes{128});
  ledger.release(MemoryClass::kSavedActivations, Bytes{128});
  ledger.book(MemoryClass::kWorkspace, Bytes{64});
  return ledger;
}

TEST(LedgerTable, ShowsClassesThatAreUsedAndTheSum) {
  const std::string text = ledger_table(example(), std::nullopt, std::nullopt);
  EXPECT_NE(text.find("weights"), std::string::npos);
  EXPECT_NE(text.find("6,400"), std::string::npos);
  EXPECT_NE(text.find("6,528"), std::string::npos);  // the peak of the sum, not the sum of the peaks
  EXPECT_EQ(text.find("moments"), std::string::npos);
}

TEST(LedgerTable, NamesTheClassThatDiffers) {
  Ledger counted = example();
  counted.book(MemoryClass::kWorkspace, Bytes{64});
  const std::string text = ledger_table(example(), counted, Bytes{7000});
  EXPECT_NE(text.find("DIFFERS"), std::string::npos);
  EXPECT_NE(text.find("equal"), std::string::npos);
  EXPECT_NE(text.find("resident memory"), std::string::npos);
}

TEST(LedgerTable, JsonKeysCarryTheirUnit) {
  const Json json = ledger_json(example());
  EXPECT_EQ(json.find("weights_bytes")->as_integer(), 6400);
  EXPECT_EQ(json.find("saved_activations_bytes")->as_integer(), 128);
  EXPECT_EQ(json.find("peak_sum_bytes")->as_integer(), 6528);
}

}  // namespace
}  // namespace trireme::report
