// `trireme plan memory`, `plan MODEL` and `plan axes` as people and scripts see them: what fits, what is best, and why.

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/ledger.h"
#include "support/program_json.h"

namespace trireme {
namespace {

using testing::at;
using ::testing::HasSubstr;
using testing::json_of;
using ::testing::Not;
using testing::number;
using testing::table_of;

const std::string k405B = "plan examples/models/llama-3.1-405b --cluster h100:16384 --batch 2048";
const std::string k8B = "plan examples/models/llama-3-8b --cluster h100:64 --batch 512";
const std::string kGpt2 = "plan examples/models/gpt2 --cluster h100:8 --batch 512";

// What follows `start` in a text.
std::string after(const std::string& text, const std::string& start) {
  const std::size_t found = text.find(start);
  EXPECT_NE(found, std::string::npos) << start << " in\n" << text;
  return found == std::string::npos ? "" : text.substr(found);
}

// The flags that ask `plan memory` about a layout of a JSON answer.
std::string flags_of(const Json& layout) {
  std::string flags = at(layout, "sequence_parallel").as_bool() ? " --sequence-parallel on" : "";
  for (const char* key : {"tp", "pp", "dp", "interleave", "zero"}) {
    flags += fmt::format(" --{} {}", key, at(layout, key).as_integer());
  }
  flags += fmt::format(" --micro-batch {}", at(layout, "micro_batch").as_integer());
  for (const char* key : {"schedule", "recompute", "order"}) {
    flags += fmt::format(" --{} {}", key, at(layout, key).as_string());
  }
  return flags;
}

// A folder that goes with the test.
class Folder {
 public:
  Folder() : path_(fmt::format("{}/trireme-layouts-{}", ::testing::TempDir(), ::getpid())) {
    std::filesystem::create_directories(path_);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path_); }

  std::string file(const std::string& name, const std::string& contents) const {
    const std::filesystem::path path = std::filesystem::path(path_) / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << contents;
    return path.string();
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// --- memory of a number of parameters ------------------------------------------------------------------------------

TEST(PlanState, SevenBillionOnEightRanks) {
  const std::string question = "plan memory --params 7B --ranks 8";
  const Json zero = at(json_of(question), "zero");
  const double expected[] = {112.00, 38.50, 26.25, 14.00};
  ASSERT_EQ(zero.as_array().size(), 4U);
  for (std::size_t stage = 0; stage < 4; ++stage) {
    const Json& entry = zero.as_array()[stage];
    EXPECT_EQ(number(entry, "stage"), static_cast<double>(stage));
    EXPECT_DOUBLE_EQ(number(entry, "bytes_per_rank"), expected[stage] * 1e9);
    EXPECT_DOUBLE_EQ(
        number(entry, "bytes_per_rank"),
        number(entry, "weights_bytes") + number(entry, "gradients_bytes") + number(entry, "optimizer_bytes"));
    EXPECT_THAT(table_of(question), HasSubstr(fmt::format("{:.2f} GB\n", expected[stage])));
  }
}

TEST(PlanState, SaysWhatFits) {
  const std::string question = "plan memory --params 7B --ranks 8 --device-memory 80GB";
  const std::string text = table_of(question);
  EXPECT_THAT(text, HasSubstr("does not fit: 112.00 GB of 80.00"));
  EXPECT_THAT(text, HasSubstr("fits: 38.50 GB of 80.00, 41.50 GB free"));
  EXPECT_THAT(text, HasSubstr("ZeRO 0: no number; ZeRO 1: 2; ZeRO 2: 2; ZeRO 3: 2\n"));
  const Json::Array zero = at(json_of(question), "zero").as_array();
  EXPECT_FALSE(at(zero[0], "fits").as_bool());
  EXPECT_DOUBLE_EQ(number(zero[0], "margin_bytes"), -32e9);
  EXPECT_TRUE(at(zero[0], "fewest_ranks").is_null());
  EXPECT_TRUE(at(zero[1], "fits").as_bool());
  EXPECT_EQ(number(zero[1], "fewest_ranks"), 2);
}

TEST(PlanState, SmallMemoriesAreNotPrintedAsNothing) {
  EXPECT_THAT(table_of("plan memory --params 1M --device-memory 1MB", 71),
              HasSubstr("does not fit: 16.00 MB of 1.00 MB"));
  EXPECT_THAT(table_of("plan memory --params 10000 --device-memory 200000B"),
              HasSubstr("fits: 160.00 KB of 200.00 KB, 40.00 KB free"));
}

TEST(PlanState, ExitCodeWhereNoStageFits) {
  EXPECT_THAT(table_of("plan memory --params 70B --ranks 8 --device-memory 80GB", 71), HasSubstr("does not fit"));
  json_of("plan memory --params 70B --ranks 8 --device-memory 80GB", 71);
  table_of("plan memory --params 70B --ranks 16 --device-memory 80GB");  // ZeRO 3 does
}

TEST(PlanState, AFractionOfAUnitIsTaken) {
  EXPECT_EQ(number(json_of("plan memory --params 7B --ranks 8 --device-memory 79.1GiB"), "device_memory_bytes"),
            84932978278);
  EXPECT_EQ(number(json_of("plan memory --params 7000000000"), "parameters"), 7e9);
}

TEST(PlanState, WhatTheRanksSayMayBeSaidAgain) {
  const Json said = json_of("plan memory --params 7B --ranks 8 --tp 1 --pp 1 --dp 8");
  EXPECT_EQ(said.dump(), json_of("plan memory --params 7B --ranks 8").dump());
  EXPECT_EQ(json_of("plan memory --params 7B --precision fp32 --fp32-gradients").dump(),
            json_of("plan memory --params 7B --precision fp32").dump());
}

TEST(PlanState, Types) {
  const auto bytes = [](const std::string& flags) {
    return number(at(json_of("plan memory --params 1M" + flags), "zero").as_array()[0], "bytes_per_rank") / 1e6;
  };
  EXPECT_EQ(bytes(""), 16);
  EXPECT_EQ(bytes(" --fp32-gradients"), 18);
  EXPECT_EQ(bytes(" --precision fp32"), 16);
}

// --- memory of a model ---------------------------------------------------------------------------------------------

constexpr const char* kTinyGpt2 = R"({"model_type": "gpt2", "vocab_size": 256, "n_embd": 48, "n_layer": 3, "n_head": 3,
  "n_positions": 96, "resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.0})";
constexpr const char* kTinyLlama = R"({"model_type": "llama", "vocab_size": 256, "hidden_size": 64,
  "intermediate_size": 160, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
  "max_position_embeddings": 96, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": false})";

void expect_same_ledger(const Json& planned, const Json& predicted, const std::string& what) {
  const Json& classes = at(planned, "classes");
  for (int i = 0; i < kMemoryClassCount; ++i) {
    const std::string key = std::string(memory_class_key(static_cast<MemoryClass>(i))) + "_bytes";
    EXPECT_EQ(number(classes, key), number(predicted, key)) << what << ": " << key;
  }
  EXPECT_EQ(number(planned, "floor_bytes"), number(predicted, "peak_sum_bytes")) << what;
}

// Law 1 through the program: what the sum says is what a run predicts for itself, to the byte, class by class.
TEST(PlanMemory, IsTheLedgerOfTheRun) {
  const Folder folder;
  std::string book;
  for (int line = 0; line < 100; ++line) book += fmt::format("line {} of a text that says nothing\n", line);
  const std::string text = folder.file("book.txt", book);
  ASSERT_EQ(testing::run_trireme(fmt::format("data tokenize '{}' --out '{}/data'", text, folder.path())).code, 0);
  for (const char* config : {kTinyGpt2, kTinyLlama}) {
    const std::string model = folder.file("model/config.json", config);
    const std::string run = folder.file(
        "run.toml",
        fmt::format("[model]\nconfig = \"{0}\"\n[data]\ntrain = \"{1}/data/train.bin\"\n[train]\nsteps = 1\n"
                    "threads = 1\nsequence = 40\nglobal_batch = 6\nmicro_batch = 2\n[out]\n"
                    "directory = \"{1}/run\"\n",
                    model, folder.path()));
    for (const char* recompute : {"none", "selective", "full"}) {
      const std::string what = std::string(config).substr(0, 24) + " recompute " + recompute;
      const Json dry = json_of(fmt::format("train '{}' --dry-run --layout.recompute {}", run, recompute));
      const Json planned = json_of(
          fmt::format("plan memory '{}' --precision fp32 --sequence 40 --batch 6 --micro-batch 2 --recompute {} "
                      "--checkpoints",
                      model, recompute));
      EXPECT_EQ(number(planned, "parameters"), number(dry, "parameters"));
      const Json& stage = at(planned, "stages").as_array().at(0);
      expect_same_ledger(at(stage, "memory"), at(dry, "predicted"), what);
    }
  }
}

TEST(PlanMemory, KeysOfALayout) {
  const Json result = json_of("plan memory examples/models/llama-3-8b --tp 2 --pp 2 --dp 4 --device-memory 80GB");
  EXPECT_EQ(number(result, "parameters"), 8'030'261'248);
  EXPECT_EQ(at(result, "stages").as_array().size(), 2U);
  double worst = 0;
  for (const Json& stage : at(result, "stages").as_array()) {
    const Json& memory = at(stage, "memory");
    double sum = 0;
    for (const auto& [key, value] : at(memory, "classes").as_object()) sum += value.as_number();
    EXPECT_EQ(sum, number(memory, "floor_bytes"));
    EXPECT_EQ(sum + number(memory, "context_bytes") + number(memory, "fragmentation_bytes"),
              number(memory, "expected_bytes"));
    worst = std::max(worst, number(memory, "expected_bytes"));
  }
  EXPECT_EQ(number(result, "bytes_per_rank"), worst);
  const Json::Array& zero = at(result, "zero").as_array();
  ASSERT_EQ(zero.size(), 4U);
  EXPECT_EQ(number(zero[0], "bytes_per_rank"), worst);
  for (std::size_t i = 1; i < zero.size(); ++i) {
    EXPECT_EQ(number(zero[i], "stage"), static_cast<double>(i));
    EXPECT_LT(number(zero[i], "bytes_per_rank"), number(zero[i - 1], "bytes_per_rank"));
  }
  EXPECT_TRUE(at(result, "fits").as_bool());
  EXPECT_EQ(number(result, "margin_bytes"), 80e9 - worst);
  EXPECT_GE(number(result, "fewest_devices"), 1);
  EXPECT_LE(number(result, "fewest_devices"), 16);
}

// An option that says what is so by itself changes nothing.
TEST(PlanMemory, WhatIsSaidTwiceIsTaken) {
  const auto same = [](const std::string& question, const std::string& said) {
    EXPECT_EQ(json_of("plan memory " + question + said).dump(), json_of("plan memory " + question).dump()) << said;
  };
  const std::string gpt2 = "--family gpt2 --layers 4 --hidden 512 --heads 8";
  same(gpt2, " --head-dim 64");
  same(gpt2, " --kv-heads 8 --head-dim 64 --ffn 2048 --vocabulary 51200 --positions 2048");
  same("--layers 4 --hidden 512 --heads 8", " --family llama --kv-heads 8 --head-dim 64");
  same("examples/models/gpt2",
       " --family gpt2 --layers 12 --hidden 768 --heads 12 --kv-heads 12 --head-dim 64 --ffn 3072 --vocabulary 50257 "
       "--positions 1024 --tied");
  same("examples/models/llama-3-8b --tp 2 --dp 4", " --ranks 8 --devices 8 --params 8B --kv-heads 8 --pp 1");
  same("examples/models/gpt2 --precision fp32", " --fp32-gradients");
}

TEST(PlanMemory, PositionsFollowTheSequence) {
  const std::string widths = "--layers 4 --hidden 512 --heads 8";
  for (const std::string family : {"llama", "gpt2"}) {
    const std::string question = "plan memory " + widths + " --family " + family + " --sequence 4096";
    EXPECT_EQ(json_of(question).dump(), json_of(question + " --positions 4096").dump()) << family;
  }
  // Rotary positions go on, and a note says so; learned ones are refused (refusals_test.cc).
  const testing::ProgramRun beyond = testing::run_trireme("plan memory examples/models/llama-3-8b --sequence 16384");
  EXPECT_EQ(beyond.code, 0) << beyond.error;
  EXPECT_EQ(
      beyond.error,
      "note: --sequence 16384 is beyond the 8192 positions of examples/models/llama-3-8b: planned as if it had as "
      "many\n");
  EXPECT_THAT(beyond.out, HasSubstr("micro-batch 1 x 16384 tokens"));
  EXPECT_EQ(testing::run_trireme("plan " + widths + " --sequence 4096 --cluster h100:8 --batch 64 --top 1").code, 0);
}

TEST(PlanMemory, ExitCodeWhereItDoesNotFit) {
  const std::string question = "plan memory examples/models/llama-3-8b --device-memory 80GB";
  const Json result = json_of(question, 71);
  EXPECT_FALSE(at(result, "fits").as_bool());
  EXPECT_LT(number(result, "margin_bytes"), 0);
  const std::string text = table_of(question, 71);
  EXPECT_THAT(text, HasSubstr(fmt::format("does not fit: {:.2f} GB of 80.00", number(result, "bytes_per_rank") / 1e9)));
  EXPECT_THAT(text, HasSubstr(fmt::format("fewest devices that would do: {}:", number(result, "fewest_devices"))));
}

// Activations of "Reducing Activation Recomputation" (Korthikanti et al. 2022): s b h (34 + 5 a s / h) a layer over tp
// with sequence parallelism, s b h (10 + 24 / t + 5 a s / (h t)) without; the first of p stages holds as many layers.
TEST(PlanMemory, ActivationsOfThePaper) {
  const double sbh = 2048.0 * 12288, scores = 5.0 * 96 * 2048 / 12288;
  const auto activations = [](const std::string& flags) {
    const Json result = json_of(
        "plan memory --family gpt2 --layers 96 --hidden 12288 --heads 96 --tp 8 --pp 8 --sequence 2048 "
        "--framework megatron-2021" +
        flags);
    const Json& memory = at(at(result, "stages").as_array()[0], "memory");
    return number(at(memory, "classes"), "saved_activations_bytes");
  };
  const double slack = 0.01;  // embedding, and what one layer holds while it recomputes
  const double plain = 96 * sbh * (10 + 24 / 8.0 + scores / 8), parallel = 96 * sbh * (34 + scores) / 8;
  EXPECT_NEAR(activations(""), plain, slack * plain);
  EXPECT_NEAR(activations(" --sequence-parallel on"), parallel, slack * parallel);
  const double selective = 96 * sbh * 34 / 8, one_layer = sbh * (34 + scores) / 8;
  EXPECT_GT(activations(" --sequence-parallel on --recompute selective"), selective);
  EXPECT_LT(activations(" --sequence-parallel on --recompute selective"), selective + one_layer);
}

TEST(PlanMemory, LongStepsAnswerAtOnce) {
  const Json walked = json_of("plan memory examples/models/gpt2 --pp 4 --batch 8000");
  const Json longer = json_of("plan memory examples/models/gpt2 --pp 4 --batch 1000000");
  // 1F1B holds as many micro-batches however many there are; the tokens of the step grow.
  const double tokens = 4.0 * 1024 * (1'000'000 - 8000);
  EXPECT_NEAR(number(longer, "bytes_per_rank") - number(walked, "bytes_per_rank"), tokens, 0.01 * tokens);
}

// --- the search ----------------------------------------------------------------------------------------------------

constexpr double kH100 = 84'932'978'278, kA100 = 84'986'665'370;  // 79.1 and 79.15 GiB, as the presets have it

void expect_sums(const Json& estimate, double memory) {
  double time = 0;
  for (const auto& [key, value] : at(estimate, "time").as_object()) {
    EXPECT_GE(value.as_number(), -1e-9 * number(estimate, "step_s")) << key;
    time += value.as_number();
  }
  EXPECT_NEAR(time, number(estimate, "step_s"), 1e-9 * time);
  double bytes = 0;
  for (const auto& [key, value] : at(at(estimate, "memory"), "classes").as_object()) bytes += value.as_number();
  EXPECT_NEAR(bytes, number(at(estimate, "memory"), "floor_bytes"), 1.0);
  EXPECT_EQ(number(at(estimate, "memory"), "expected_bytes"), number(estimate, "memory_bytes"));
  EXPECT_NEAR(number(estimate, "headroom_bytes"), memory - number(estimate, "memory_bytes"), 1.0);
  EXPECT_GE(number(estimate, "headroom_bytes"), 0);
  EXPECT_GT(number(estimate, "mfu_fraction"), 0);
  EXPECT_LT(number(estimate, "mfu_fraction"), 1);
}

TEST(PlanModel, FourHundredBillionOnSixteenThousand) {
  const Json result = json_of(k405B);
  EXPECT_TRUE(at(result, "winner_proved").as_bool());
  EXPECT_EQ(number(result, "devices"), 16384);
  EXPECT_EQ(number(result, "device_memory_bytes"), kH100);
  const Json::Array& best = at(result, "best").as_array();
  ASSERT_GE(best.size(), 2U);
  double before = 0;
  for (const Json& estimate : best) {
    expect_sums(estimate, kH100);
    EXPECT_GE(number(estimate, "step_s"), before);
    before = number(estimate, "step_s");
    const Json& layout = at(estimate, "layout");
    EXPECT_EQ(number(layout, "tp") * number(layout, "pp") * number(layout, "dp"), 16384);
  }
  // The paper's runs: 38 to 43 % of the peak.
  EXPECT_GT(number(best[0], "mfu_fraction"), 0.30);
  EXPECT_LT(number(best[0], "mfu_fraction"), 0.55);
  EXPECT_FALSE(at(result, "near_misses").as_array().empty());
  for (const Json& miss : at(result, "near_misses").as_array()) EXPECT_GT(number(miss, "missing_bytes"), 0);
}

TEST(PlanModel, ParetoStartsWithTheBest) {
  for (const std::string& question : {k405B, k8B, kGpt2}) {
    const Json result = json_of(question);
    const Json::Array& pareto = at(result, "pareto").as_array();
    ASSERT_FALSE(pareto.empty());
    EXPECT_EQ(number(pareto[0], "step_s"), number(at(result, "best").as_array()[0], "step_s")) << question;
    for (std::size_t i = 1; i < pareto.size(); ++i) {
      EXPECT_GE(number(pareto[i], "step_s"), number(pareto[i - 1], "step_s"));
      EXPECT_LT(number(pareto[i], "memory_bytes"), number(pareto[i - 1], "memory_bytes"));
    }
  }
}

TEST(PlanModel, MemoryIsThatOfPlanMemory) {
  const Json result = json_of(k8B);
  for (const Json& estimate : at(result, "best").as_array()) {
    const std::string flags = flags_of(at(estimate, "layout"));
    const Json asked = json_of("plan memory examples/models/llama-3-8b --batch 512" + flags);
    EXPECT_NEAR(number(asked, "bytes_per_rank"), number(estimate, "memory_bytes"), 0.01 * kH100) << flags;
  }
}

TEST(PlanModel, Explains) {
  const std::string text = table_of(k8B + " --explain 2");
  EXPECT_THAT(text, HasSubstr("8,030,261,248 parameters"));
  EXPECT_THAT(text, HasSubstr("no other can be better than the first"));
  EXPECT_THAT(after(text, "explained: "), HasSubstr("what binds: "));
  EXPECT_THAT(text, HasSubstr("what would change it"));
  EXPECT_THAT(text, HasSubstr("faster, but too large:"));
  // A row says at least a twentieth less memory than the one above it.
  const std::string pareto = after(text, "fastest for its memory");
  EXPECT_LT(std::count(pareto.begin(), pareto.end(), '\n'), 40);
}

TEST(PlanModel, WhyNot) {
  const auto why = [](const std::string& values) {
    return after(table_of(k8B + " --why-not " + values), "why not " + values + "?");
  };
  EXPECT_THAT(why("tp=16,pp=4"), HasSubstr("it is not legal: --tp = 16: tensor parallelism would leave the host (8 "
                                           "devices)"));
  EXPECT_THAT(why("tp=16,pp=4"), HasSubstr("nearest legal: 8\n"));
  EXPECT_THAT(why("dp=3"), HasSubstr("--dp = 3: must divide the devices (64); nearest legal: 2, 4\n"));
  EXPECT_THAT(why("micro-batch=3"), HasSubstr("--batch = 512: micro-batch x dp (3 x 64) must divide it"));
  EXPECT_THAT(why("sequence-parallel=on,tp=1"), HasSubstr("--sequence-parallel = on: "));
  EXPECT_THAT(why("dp=64"), HasSubstr("it is the first of the list\n"));
  EXPECT_THAT(why("tp=8"), HasSubstr("the best of its kind: dp 8 x tp 8"));
  EXPECT_THAT(why("tp=8"), HasSubstr("tensor axis, exposed        +"));
  EXPECT_THAT(why("tp=1,zero=0,micro-batch=64,recompute=none"), HasSubstr("the smallest of its kind: "));
  const Json illegal = at(json_of(k8B + " --why-not tp=16,pp=4"), "why_not");
  EXPECT_THAT(at(illegal, "illegal").as_string(), HasSubstr("would leave the host"));
  const Json large = at(json_of(k8B + " --why-not tp=1,zero=0,micro-batch=64,recompute=none"), "why_not");
  EXPECT_TRUE(at(large, "illegal").is_null());
  EXPECT_GT(number(large, "missing_bytes"), 0);
}

TEST(PlanModel, ExitCodeWhereNothingFits) {
  const std::string question = "plan examples/models/llama-3.1-405b --cluster h100:8 --batch 16";
  const Json result = json_of(question, 71);
  EXPECT_TRUE(at(result, "best").as_array().empty());
  EXPECT_EQ(number(result, "fitting"), 0);
  EXPECT_GT(number(at(result, "smallest"), "missing_bytes"), 0);
  for (const Json& miss : at(result, "near_misses").as_array()) EXPECT_GT(number(miss, "missing_bytes"), 0);
  const std::string text = table_of(question, 71);
  EXPECT_THAT(text, HasSubstr("nothing fits. The smallest: "));
  EXPECT_THAT(text, HasSubstr("does not fit: "));
  EXPECT_THAT(text, Not(HasSubstr("explained")));
}

TEST(PlanModel, OddWorlds) {
  for (const char* question :
       {"plan examples/models/gpt2 --cluster h100:1 --batch 1", "plan examples/models/gpt2 --cluster h100:7 --batch 7",
        "plan examples/models/gpt2 --cluster h100:24 --batch 24 --sequence 1",
        "plan --layers 7 --hidden 64 --heads 2 --vocabulary 1 --cluster a100-40:16 --batch 48",
        "plan --layers 1 --hidden 2 --heads 1 --vocabulary 1 --sequence 1 --cluster h100:1 --batch 1",
        "plan examples/models/llama-3.1-405b --cluster h100:16384 --batch 16M"}) {
    const Json result = json_of(question);
    const double memory = number(result, "device_memory_bytes");
    EXPECT_FALSE(at(result, "best").as_array().empty()) << question;
    for (const Json& estimate : at(result, "best").as_array()) expect_sums(estimate, memory);
  }
}

TEST(PlanModel, RanksByWhatIsAsked) {
  const auto first = [](const std::string& objective) {
    return at(json_of(kGpt2 + " --rank-by " + objective), "best").as_array()[0];
  };
  const auto world = [](const Json& e) {
    const Json& layout = at(e, "layout");
    return number(layout, "tp") * number(layout, "pp") * number(layout, "dp");
  };
  const Json time = first("time"), cost = first("cost"), headroom = first("headroom");
  EXPECT_LE(number(time, "step_s"), number(headroom, "step_s"));
  EXPECT_GE(number(headroom, "headroom_bytes"), number(time, "headroom_bytes"));
  EXPECT_LE(number(cost, "step_s") * world(cost), number(time, "step_s") * world(time));
}

// --- the axes ------------------------------------------------------------------------------------------------------

TEST(PlanAxes, WhatEachSendsAndCosts) {
  const std::string question = "plan axes examples/models/llama-2-70b --cluster a100-80:256 --batch 1024 --tp 8 --pp 4";
  const Json result = json_of(question);
  const Json::Array& axes = at(result, "axes").as_array();
  ASSERT_EQ(axes.size(), 3U);
  EXPECT_EQ(at(axes[0], "axis").as_string(), "tensor");
  EXPECT_EQ(at(axes[1], "axis").as_string(), "pipeline");
  EXPECT_EQ(at(axes[2], "axis").as_string(), "data");
  EXPECT_EQ(number(axes[2], "degree"), 8);
  EXPECT_EQ(at(axes[0], "link").as_string(), "inside hosts");
  EXPECT_EQ(at(axes[1], "link").as_string(), "between hosts");
  for (const Json& axis : axes) {
    EXPECT_GT(number(axis, "bytes_per_rank"), 0);
    EXPECT_GT(number(axis, "operations_per_step"), 0);
  }
  const Json& estimate = at(result, "estimate");
  expect_sums(estimate, kA100);
  EXPECT_EQ(number(axes[0], "exposed_s"), number(at(estimate, "time"), "tensor_s"));
  const std::string text = table_of(question);
  EXPECT_THAT(text, HasSubstr("tensor parallelism x 8\n"));
  EXPECT_THAT(text, HasSubstr("which axis solves the bottleneck: "));
}

TEST(PlanAxes, WhichOneAModelAsksFor) {
  const auto axis = [](const std::string& question) {
    return at(at(json_of("plan axes " + question, 71), "advice"), "axis").as_string();
  };
  EXPECT_EQ(axis("examples/models/llama-2-70b --cluster a100-80:256 --batch 1024"), "zero");
  EXPECT_EQ(axis("--layers 2 --hidden 65536 --heads 512 --cluster h100:8 --batch 8"), "tensor");
  EXPECT_EQ(axis("examples/models/llama-3.1-405b --cluster h100:8 --batch 8"), "pipeline");
  const Json fits = json_of("plan axes examples/models/gpt2 --cluster h100:8 --batch 64");
  EXPECT_EQ(at(at(fits, "advice"), "axis").as_string(), "data");
}

TEST(PlanAxes, OneDeviceSendsNothing) {
  const std::string question = "plan axes examples/models/gpt2 --cluster h100:1 --batch 1";
  const Json result = json_of(question);
  for (const Json& axis : at(result, "axes").as_array()) {
    EXPECT_EQ(number(axis, "bytes_per_rank"), 0);
    EXPECT_EQ(number(axis, "exposed_s"), 0);
  }
  EXPECT_THAT(table_of(question), HasSubstr("  sends   nothing: one rank\n"));
}

}  // namespace
}  // namespace trireme
