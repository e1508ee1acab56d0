#include "planner/published.h"

#include <gtest/gtest.h>

#include "model/flops.h"
#include "planner/csv.h"
#include "planner/published_score.h"

namespace trireme::planner {
namespace {

constexpr const char* kHeader =
    "id,source,model,layers,hidden,heads,kv_heads,ffn,mlp_gated,vocab,tied_emb,seq_len,gpu,n_gpus,gpus_per_node,"
    "internode_gbps_per_gpu,tp,pp,vpp,dp,cp,ep,micro_batch,global_batch,precision,zero,recompute,seq_par,metric,value,"
    "metric2,value2,metric3,value3,flops_convention,notes\n";

// A GPT of 1.2e9 parameters on one host, and what a test changes of it.
struct Line {
  std::string source = "vTrain", model = "GPT", shape = "24,2048,16,16,8192,0", vocab = "51200", seq = "2048";
  std::string gpu = "A100-SXM4-80GB", gpus = "8,8,200", layout = "2,2,1,2,1,", batch = "1,32", precision = "fp16";
  std::string zero = "0", recompute = "full", seq_par = "0", metrics = "step_seconds,4.5,,,,", convention = "",
              notes = "";

  std::string text() const {
    return "r1," + source + ',' + model + ',' + shape + ',' + vocab + ",1," + seq + ',' + gpu + ',' + gpus + ',' +
           layout + ',' + batch + ',' + precision + ',' + zero + ',' + recompute + ',' + seq_par + ',' + metrics + ',' +
           convention + ',' + notes + '\n';
  }
  PublishedRuns parsed() const { return parse_published(kHeader + text(), "runs.csv").or_throw(); }
  PublishedRun run() const {
    const PublishedRuns runs = parsed();
    EXPECT_TRUE(runs.skipped.empty()) << runs.skipped[0].reason << ": " << runs.skipped[0].detail;
    return runs.runs.at(0);
  }
  std::string reason() const {
    const PublishedRuns runs = parsed();
    EXPECT_TRUE(runs.runs.empty());
    return runs.skipped.at(0).reason;
  }
  std::string refusal() const {
    const Result<PublishedRuns> runs = parse_published(kHeader + text(), "runs.csv");
    EXPECT_FALSE(runs);
    return runs.failure().sentence();
  }
};

TEST(Csv, QuotedFields) {
  const CsvTable table = parse_csv("a,b\r\n\"1,\"\"2\"\"\n\",x\r\n\r\n3,", "f.csv").or_throw();
  EXPECT_EQ(table.header, (std::vector<std::string>{"a", "b"}));
  ASSERT_EQ(table.records.size(), 2u);
  EXPECT_EQ(table.records[0].fields, (std::vector<std::string>{"1,\"2\"\n", "x"}));
  EXPECT_EQ(table.records[0].line, 2);
  EXPECT_EQ(table.records[1].fields, (std::vector<std::string>{"3", ""}));
  EXPECT_EQ(table.records[1].line, 5);
}

TEST(Csv, Refusals) {
  EXPECT_EQ(parse_csv("", "f.csv").failure().sentence(), "f.csv: there is no header line");
  EXPECT_NE(parse_csv("a,b\n1,2,3\n", "f.csv").failure().sentence().find("f.csv:2"), std::string::npos);
  EXPECT_NE(parse_csv("a\n1\n\"2\n", "f.csv").failure().sentence().find("f.csv:3"), std::string::npos);
}

TEST(Published, PlainModel) {
  const PublishedRun run = Line().run();
  EXPECT_EQ(run.config.family, model::Family::kGpt2);
  EXPECT_EQ(run.config.position, model::PositionKind::kLearned);
  EXPECT_TRUE(run.config.mlp_bias && run.config.attention_input_bias && run.config.tied_embeddings);
  EXPECT_FALSE(run.config.gated_mlp);
  EXPECT_EQ(run.config.head_dim, 128);
  EXPECT_EQ(run.config.max_positions, 2048);
  EXPECT_EQ(run.framework, "megatron-2021");
  EXPECT_FALSE(run.fp32_gradients);
  EXPECT_EQ(run.cluster.device.name, "A100-SXM-80GB");
  EXPECT_EQ(run.cluster.between.bytes_per_s, 25e9);
  EXPECT_EQ(run.line, 2);
  EXPECT_EQ(run.choice.tp, 2);
  EXPECT_EQ(run.choice.recompute, model::Recompute::kFull);
  EXPECT_EQ(run.choice.schedule, plan::ScheduleKind::kOneFOneB);
  EXPECT_EQ(run.step_s, 4.5);
  EXPECT_FALSE(run.memory_bytes);
}

TEST(Published, GatedModelOnManyHosts) {
  Line line{.source = "HF ultrascale", .shape = "32,4096,32,8,14336,1", .vocab = "", .gpu = "H100-SXM5-80GB"};
  line.gpus = "20,8,";
  line.layout = "1,1,,20,,";
  line.batch = "1,40";
  line.zero = "dist-opt (1)";
  line.recompute = "";
  line.precision = "\"bf16, fp32 grads\"";
  const PublishedRun run = line.run();
  EXPECT_EQ(run.config.family, model::Family::kLlama);
  EXPECT_EQ(run.config.kv_heads, 8);
  EXPECT_EQ(run.config.vocabulary, 51200);
  EXPECT_EQ(run.framework, "nanotron");
  EXPECT_EQ(run.cluster.hosts, 3);
  EXPECT_EQ(run.cluster.between.bytes_per_s, 50e9);  // the preset's
  EXPECT_EQ(run.choice.zero, 1);
  EXPECT_EQ(run.choice.recompute, model::Recompute::kNone);
}

TEST(Published, Devices) {
  const auto cluster = [](const std::string& gpu) { return Line{.gpu = gpu}.run().cluster; };
  EXPECT_EQ(cluster("A100-SXM4-40GB").device.name, "A100-SXM-40GB");
  EXPECT_EQ(cluster("A800-80GB").inside.bytes_per_s, 200e9);
  EXPECT_EQ(cluster("H800-SXM-80GB").inside.bytes_per_s, 200e9);
  EXPECT_EQ(cluster("H200-SXM").device.name, "H200-SXM-141GB");
  EXPECT_EQ(cluster("B200-SXM-180GB").device.name, "B200-SXM-180GB");
  EXPECT_EQ(cluster("GB200-NVL72").device.name, "GB200-186GB");
  const cluster::Device part = cluster("H100-96GB HBM2e 500W").device;
  EXPECT_EQ(part.name, "H100-SXM-80GB");  // its calibration
  EXPECT_EQ(part.memory_bytes_per_s, 2.4e12);
  EXPECT_LT(part.bf16_flops_per_s, cluster("H100-SXM5-80GB").device.bf16_flops_per_s);
}

TEST(Published, Layouts) {
  EXPECT_EQ((Line{.zero = "3 (FSDP full shard)"}.run().choice.zero), 3);
  EXPECT_EQ((Line{.zero = "FSDP: parameters kept (2-like)"}.run().choice.zero), 2);
  EXPECT_EQ((Line{.zero = "0/1 (DeepSpeed 3D)"}.run().choice.zero), 1);
  EXPECT_EQ((Line{.zero = "FSDP2"}.run().choice.zero), 3);
  EXPECT_EQ((Line{.zero = ""}.run().choice.zero), 0);
  const PublishedRun interleaved = Line{.layout = "2,2,3,2,1,", .recompute = "selective", .seq_par = "1"}.run();
  EXPECT_EQ(interleaved.choice.schedule, plan::ScheduleKind::kInterleaved);
  EXPECT_EQ(interleaved.choice.interleave, 3);
  EXPECT_EQ(interleaved.choice.recompute, model::Recompute::kSelective);
  EXPECT_TRUE(interleaved.choice.sequence_parallel);
  EXPECT_FALSE((Line{.layout = "1,2,1,4,1,", .seq_par = "1"}.run().choice.sequence_parallel));
  EXPECT_EQ((Line{.notes = "\"schedule ZB-1p, 24 of them\""}.run().choice.schedule), plan::ScheduleKind::kZeroBubbleH1);
  EXPECT_EQ((Line{.recompute = "selective (op SAC)"}.run().choice.recompute), model::Recompute::kSelective);
  EXPECT_EQ((Line{.recompute = ""}.run().choice.recompute), model::Recompute::kSelective);
  EXPECT_TRUE((Line{.precision = "bf16"}.run().fp32_gradients));
}

TEST(Published, LeftOut) {
  EXPECT_EQ((Line{.precision = "fp8"}.reason()), "the precision is not of 16 bits");
  EXPECT_EQ((Line{.source = "somebody"}.reason()), "the framework of the source is not known");
  EXPECT_EQ((Line{.shape = "24,2048,16,16,,0"}.reason()), "ffn is not stated");
  EXPECT_EQ((Line{.batch = ",32"}.reason()), "micro_batch is not stated");
  EXPECT_EQ((Line{.model = "16B (MoE)"}.reason()), "mixture of experts");
  EXPECT_EQ((Line{.layout = "2,2,1,2,1,8"}.reason()), "mixture of experts");
  EXPECT_EQ((Line{.layout = "2,2,1,2,2,"}.reason()), "context parallelism");
  EXPECT_EQ((Line{.layout = "2,2,,2,1,"}.reason()), "vpp is not stated");
  EXPECT_EQ((Line{.notes = "sliding-window attention"}.reason()), "another transformer block");
  EXPECT_EQ((Line{.shape = "24,2048,15,15,8192,0"}.reason()), "heads do not divide the width");
  EXPECT_EQ((Line{.gpu = ""}.reason()), "gpu is not stated");
  EXPECT_EQ((Line{.gpu = "GB300-NVL72"}.reason()), "no preset for the device");
  EXPECT_EQ((Line{.zero = "some"}.reason()), "the sharding is not known");
  EXPECT_EQ((Line{.recompute = "every n-th block"}.reason()), "recomputes a part that the planner does not know");
  EXPECT_EQ((Line{.notes = "schedule ZB-2p"}.reason()), "the schedule is not known");
  EXPECT_EQ((Line{.gpus = "16,8,200"}.reason()), "tp * pp * dp is not the number of devices");
  EXPECT_EQ((Line{.batch = "3,32"}.reason()), "the batch is no multiple of micro-batch * dp");
  EXPECT_EQ((Line{.layout = "2,4,12,1,1,"}.reason()), "the planner refuses the layout");
  EXPECT_EQ((Line{.metrics = "outcome,OOM,,,,"}.reason()), "neither a step's time nor a device's memory was measured");
}

TEST(Published, Refusals) {
  EXPECT_EQ((Line{.vocab = "50k"}.refusal()), "runs.csv:2: vocab = 50k: must be a number, not negative");
  EXPECT_EQ((Line{.metrics = "mem_gpu_GB,OOM,,,,"}.refusal()),
            "runs.csv:2: value = OOM: must be a number, not negative");
  EXPECT_NE(parse_published("id,source\n", "runs.csv").failure().sentence().find("no column model"), std::string::npos);
  EXPECT_FALSE(parse_published("", "runs.csv"));
}

TEST(Published, SecondsOfEachMetric) {
  const auto seconds = [](const std::string& metrics, const std::string& convention = "") {
    return *Line{.metrics = metrics, .convention = convention}.run().step_s;
  };
  EXPECT_EQ(seconds("mem_gpu_GB,20,step_seconds_derived,3.5,,"), 3.5);
  EXPECT_DOUBLE_EQ(seconds("tokens_per_s_per_gpu,2048,,,,"), 4.0);
  EXPECT_DOUBLE_EQ(seconds("samples_per_s_per_gpu,2,,,,"), 2.0);
  const model::Config config = Line().run().config;
  const double model = model::model_flops(config, 32, 2048).count;
  const double hardware = model::hardware_flops(config, 32, 2048, model::Recompute::kFull).count;
  EXPECT_DOUBLE_EQ(seconds("mfu_pct,50,,,,"), model / (0.5 * 8 * 312e12));
  EXPECT_DOUBLE_EQ(seconds("tflops_per_gpu,100,,,,", "SC21 formula"), hardware / (8 * 100e12));
  EXPECT_DOUBLE_EQ(seconds("tflops_per_gpu,100,,,,", "72*B*L*s*h^2*(...)"), model / (8 * 100e12));
  EXPECT_EQ((Line{.metrics = "tflops_per_gpu,100,,,,", .convention = "own"}.reason()),
            "neither a step's time nor a device's memory was measured");
}

TEST(Published, Memory) {
  const PublishedRun device = Line{.metrics = "mem_gpu_GB,20,step_seconds,4,,"}.run();
  EXPECT_EQ(device.memory_bytes, 20e9);
  EXPECT_TRUE(device.memory_of_device);
  const PublishedRun allocated = Line{.metrics = "step_seconds,4,,,mem_peak_GiB,1"}.run();
  EXPECT_EQ(allocated.memory_bytes, 1024.0 * 1024.0 * 1024.0);
  EXPECT_FALSE(allocated.memory_of_device);
  EXPECT_FALSE((Line{.zero = "", .metrics = "step_seconds,4,mem_peak_GB,20,,"}.run().memory_bytes));
}

TEST(Published, ErrorsOfRows) {
  const Errors errors = errors_of({0.1, -0.3, 0.2, 0.0});
  EXPECT_EQ(errors.count, 4);
  EXPECT_DOUBLE_EQ(errors.mean, 0.15);
  EXPECT_DOUBLE_EQ(errors.median, 0.15);
  EXPECT_NEAR(errors.bias, 0.0, 1e-15);
  EXPECT_EQ(errors.worst, -0.3);
  EXPECT_EQ(errors_of({}).count, 0);
}

TEST(Published, ScoresBySource) {
  std::string text = kHeader;
  text += Line{.metrics = "step_seconds,0.5,mem_gpu_GB,20,,"}.text();
  text += Line{.metrics = "step_seconds,5,,,,"}.text();  // under a tenth of the peak
  text += Line{.source = "BLOOM", .metrics = "mem_peak_GB,20,,,,"}.text();
  const PublishedRuns published = parse_published(text, "runs.csv").or_throw();
  const std::vector<RunScore> scores = score_runs(published, default_calibration()).or_throw();
  ASSERT_EQ(scores.size(), 3u);
  EXPECT_DOUBLE_EQ(*scores[0].null_step_s, published.runs[0].model_flops() / (0.45 * 8 * 312e12));
  EXPECT_GT(*scores[0].memory_bytes, *scores[2].memory_bytes);  // context and fragmentation
  EXPECT_FALSE(scores[2].step_s);
  const std::vector<SourceScore> sources = score_sources(scores);
  ASSERT_EQ(sources.size(), 3u);
  EXPECT_EQ(sources[0].source, "vTrain");
  EXPECT_FALSE(sources[0].slow);
  EXPECT_EQ(sources[0].time.count, 1);
  EXPECT_DOUBLE_EQ(sources[0].time.bias, *scores[0].step_s / 0.5 - 1);
  EXPECT_EQ(sources[0].memory.count, 1);
  EXPECT_TRUE(sources[1].slow);
  EXPECT_EQ(sources[2].time.count, 0);
  EXPECT_EQ(sources[2].memory.count, 1);
}

TEST(Published, FrameworkThatTheCalibrationLacks) {
  std::string text = kHeader;
  text.insert(text.size() - 1, ",framework");
  std::string row = Line().text();
  row.insert(row.size() - 1, ",mine");
  const PublishedRuns published = parse_published(text + row, "runs.csv").or_throw();
  ASSERT_EQ(published.runs.size(), 1u);
  const auto scores = score_runs(published, default_calibration());
  ASSERT_FALSE(scores);
  EXPECT_EQ(scores.failure().value, "mine");
}

}  // namespace
}  // namespace trireme::planner
