// `trireme plan validate` through the program: a small table of runs, its scores, and what it refuses.

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "base/json.h"
#include "support/program.h"

namespace trireme {
namespace {

constexpr const char* kHeader =
    "id,source,model,layers,hidden,heads,kv_heads,ffn,mlp_gated,vocab,tied_emb,seq_len,gpu,n_gpus,gpus_per_node,"
    "internode_gbps_per_gpu,tp,pp,vpp,dp,cp,ep,micro_batch,global_batch,precision,zero,recompute,seq_par,metric,value,"
    "metric2,value2,metric3,value3,flops_convention,notes\n";

// A file of this test's own, gone at its end.
class Validate : public ::testing::Test {
 protected:
  std::string file(const std::string& text) {
    std::ofstream(path_) << text;
    return path_;
  }
  ~Validate() override { std::filesystem::remove(path_); }

 private:
  std::string path_ =
      ::testing::TempDir() + "trireme_" + ::testing::UnitTest::GetInstance()->current_test_info()->name() + ".csv";
};

std::string run_of(const std::string& id, const std::string& seconds) {
  return id + ",vTrain,GPT,24,2048,16,16,8192,0,51200,1,2048,A100-SXM4-80GB,8,8,200,2,2,1,2,1,,1,32,fp16,0,full,0," +
         "step_seconds," + seconds + ",,,,,,\n";
}

TEST_F(Validate, ScoresBySourceBesideTheNullModel) {
  const std::string path = file(kHeader + run_of("a", "4.5") + run_of("b", "5.5"));
  const testing::ProgramRun table = testing::run_trireme("plan validate " + path);
  EXPECT_EQ(table.code, 0) << table.error;
  EXPECT_NE(table.out.find("vTrain"), std::string::npos) << table.out;

  const testing::ProgramRun run = testing::run_trireme("plan validate " + path + " --json");
  EXPECT_EQ(run.code, 0) << run.error;
  EXPECT_TRUE(parse_json(run.out, "validate").ok()) << run.out;
}

TEST_F(Validate, RefusesByName) {
  const std::string path = file(kHeader + run_of("a", "quick"));
  const testing::ProgramRun number = testing::run_trireme("plan validate " + path);
  EXPECT_EQ(number.code, 2);
  EXPECT_NE(number.error.find("quick"), std::string::npos) << number.error;

  const testing::ProgramRun column = testing::run_trireme("plan validate " + file("id,source\na,b\n"));
  EXPECT_EQ(column.code, 2);
  EXPECT_NE(column.error.find("model"), std::string::npos) << column.error;

  const testing::ProgramRun missing = testing::run_trireme("plan validate there/is/no/such.csv");
  EXPECT_NE(missing.code, 0);
  EXPECT_NE(missing.error.find("there/is/no/such.csv"), std::string::npos) << missing.error;

  const testing::ProgramRun source =
      testing::run_trireme("plan validate " + file(kHeader + run_of("a", "4.5")) + " --source Nobody");
  EXPECT_EQ(source.code, 2);
  EXPECT_NE(source.error.find("Nobody"), std::string::npos) << source.error;
}

}  // namespace
}  // namespace trireme
