// The list of layouts that `trireme plan MODEL` prints: figures that can be told apart, and none that cannot be.

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/words.h"
#include "support/program_json.h"

namespace trireme {
namespace {

using testing::at;
using ::testing::HasSubstr;
using testing::json_of;
using testing::table_of;

// Attention is counted whole and computed by half: at its full rate the share would be above 1.
TEST(Peak, NoShareOfItIsAboveOne) {
  const std::string path = ::testing::TempDir() + "trireme_peak.toml";
  std::ofstream(path) << "[device.H100-SXM-80GB]\nattention_efficiency = 1.0\ngemm_efficiency = 1.0\n";
  const std::string question =
      "plan --layers 4 --hidden 512 --heads 8 --sequence 1000000 --batch 8 --cluster h100:8 --calibration " + path;
  const Json::Array best = at(json_of(question), "best").as_array();
  for (const Json& estimate : best) {
    const Json& mfu = at(estimate, "mfu_fraction");
    EXPECT_TRUE(mfu.is_null() || mfu.as_number() <= 1) << mfu.dump();
  }
  EXPECT_THAT(table_of(question), HasSubstr("   none "));
  std::filesystem::remove(path);
}

class Ranking : public ::testing::TestWithParam<const char*> {};

TEST_P(Ranking, StepsDifferOrAreSaidToBeEqual) {
  const std::string text = table_of(GetParam());
  std::string last;
  std::size_t rows = 0;
  for (const std::string_view line : split(text, '\n')) {
    const std::vector<std::string_view> words = words_of(line);
    if (words.size() < 8 || words[0] != std::to_string(rows + 1)) continue;
    EXPECT_TRUE(words[1] != last || words[1].starts_with('=')) << line;
    last = words[1];
    ++rows;
  }
  EXPECT_GE(rows, 3U);
}
constexpr const char* kQuestions[] = {
    "plan examples/models/llama-3-8b --cluster h100:64 --batch 512 --top 60",
    "plan --layers 4 --hidden 8192 --heads 64 --sequence 131072 --batch 8 --cluster h100:8",  // 24.545 s and 24.554 s
    "plan examples/models/gpt2 --cluster h100:8 --batch 512 --rank-by headroom",
};
INSTANTIATE_TEST_SUITE_P(Plan, Ranking, ::testing::ValuesIn(kQuestions));

}  // namespace
}  // namespace trireme
