// What `trireme plan` refuses: the flag, its value, the rule and what is legal, and exit code 2.

#include <gtest/gtest.h>

#include "support/program.h"

namespace trireme {
namespace {

struct Refusal {
  const char* arguments;
  const char* sentence;
};

class Refuses : public ::testing::TestWithParam<Refusal> {};

TEST_P(Refuses, WithTheRuleAndWhatIsLegal) {
  for (const char* json : {"", " --json"}) {
    const testing::ProgramRun run = testing::run_trireme(std::string("plan ") + GetParam().arguments + json);
    EXPECT_EQ(run.code, 2);
    EXPECT_EQ(run.out, "");
    EXPECT_EQ(run.error.substr(0, 7), "error: ");
    EXPECT_NE(run.error.find(GetParam().sentence), std::string::npos) << run.error;
  }
}

constexpr Refusal kComms[] = {
    {"comms --ranks 8 --link 200GB/s", "--bytes: is needed; write it like --bytes 14GB"},
    {"comms --bytes 14GB --link 200GB/s", "--ranks: is needed; write it like --ranks 8"},
    {"comms --bytes 14GB --ranks 8", "--link: is needed; write it like --link 200GB/s"},
    {"comms --bytes -14GB --ranks 8 --link 200GB/s", "--bytes = \"-14GB\": must be a number that is not negative"},
    {"comms --bytes 0 --ranks 8 --link 200GB/s", "--bytes = 0: must be more than 0; write it like --bytes 14GB"},
    {"comms --bytes 14GX --ranks 8 --link 200GB/s", "--bytes = \"14GX\": has the unit \"GX\"; legal units: B, KB"},
    {"comms --bytes 14 --ranks 8 --link 200GB/s", "--bytes = \"14\": has no unit; did you mean 14GB, 14GiB?"},
    {"comms --bytes 14GB --ranks 8 --link 200", "--link = \"200\": has no unit; legal units: GB/s"},
    {"comms --bytes 14GB --ranks 8 --link 200GB/s --latency 5", "--latency = \"5\": has no unit; legal units: ns"},
    {"comms --bytes 14GB --ranks 0 --link 200GB/s", "--ranks = 0: must be a whole number from 1 to 1,048,576"},
    {"comms --bytes 14GB --ranks -8 --link 200GB/s", "--ranks = -8: must be a whole number from 1"},
    {"comms --bytes 14GB --ranks 2M --link 200GB/s", "nearest legal: 1048576"},
    {"comms --bytes 14GB --ranks 8 --link 200GB", "--link = \"200GB\": has the unit \"GB\"; legal units: GB/s"},
    {"comms --bytes 14GB --ranks 8 --link 0GB/s", "--link = 0GB/s: must be more than 0"},
    {"comms --bytes 14GB --ranks 8 --link 1e-9B/s", "--link = 1e-9B/s: must be at least 1B/s; nearest legal: 1B/s"},
    {"comms --bytes 14GB --ranks 8 --link 1e9PB/s", "must be at most 1000PB/s; nearest legal: 1000PB/s"},
    {"comms --bytes 14GB --ranks 8 --link 200GB/s --latency -1us",
     "--latency = \"-1us\": must be a number that is not"},
    {"comms --bytes 14GB --ranks 12 --link 200GB/s --ranks-per-host 8 --host-link 50GB/s",
     "--ranks-per-host = 8: must divide --ranks (12), so that all hosts hold as many; nearest legal: 6, 12"},
    {"comms --bytes 14GB --ranks 16 --link 200GB/s --ranks-per-host 8", "--host-link: is needed"},
    {"comms --bytes 14GB --ranks 16 --link 200GB/s --host-link 50GB/s", "--ranks-per-host: is needed"},
};
INSTANTIATE_TEST_SUITE_P(Comms, Refuses, ::testing::ValuesIn(kComms));

constexpr Refusal kBubble[] = {
    {"bubble --microbatches 4", "--stages: is needed; write it like --stages 4"},
    {"bubble --stages 0 --microbatches 4", "--stages = 0: must be a whole number from 1 to 4,096; nearest legal: 1"},
    {"bubble --stages 5000", "nearest legal: 4096"},
    {"bubble --stages 4 --microbatches -4", "--microbatches = -4: must be a whole number from 1"},
    {"bubble --stages 4 --microbatches 1.5", "--microbatches = 1.5: must be a whole number from 1"},
    {"bubble --stages 4 --microbatches few", "write it like --microbatches 16"},
    {"bubble --stages 4 --interleave 0", "--interleave = 0: must be a whole number from 1 to 1,024"},
};
INSTANTIATE_TEST_SUITE_P(Bubble, Refuses, ::testing::ValuesIn(kBubble));

constexpr Refusal kLayout[] = {
    {"layout --ranks-per-host 8", "--world: is needed; write it like --world 256"},
    {"layout --world 256", "--ranks-per-host: is needed; write it like --ranks-per-host 8"},
    {"layout --world -256 --ranks-per-host 8", "--world = -256: must be a whole number from 1"},
    {"layout --world 256 --ranks-per-host 0", "--ranks-per-host = 0: must be a whole number from 1"},
    {"layout --world 100 --ranks-per-host 8",
     "--world = 100: must fill whole hosts of --ranks-per-host (8); nearest legal: 96, 104"},
    {"layout --world 256 --ranks-per-host 8 --tp 0 --pp 4", "--tp = 0: must be a whole number from 1"},
    {"layout --world 256 --ranks-per-host 8 --tp 8 --pp 0", "--pp = 0: must be a whole number from 1"},
    {"layout --world 256 --ranks-per-host 8 --tp 16 --pp 4",
     "--tp = 16: tensor parallelism would leave the host: tp must divide its 8 ranks (--allow-slow-tp permits it, over "
     "the network at every layer); nearest legal: 8"},
    {"layout --world 256 --ranks-per-host 8 --tp 3 --pp 4", "nearest legal: 2, 4"},
    {"layout --world 256 --ranks-per-host 8 --tp 3 --allow-slow-tp",
     "--tp = 3: must divide --world (256); nearest legal: 2, 4"},
    {"layout --world 256 --ranks-per-host 8 --tp 8 --pp 5",
     "--pp = 5: tp * pp (8 * 5) must divide --world (256); nearest legal: 4, 8"},
    {"layout --world 256 --ranks-per-host 8 --tp 8 --pp 64", "nearest legal: 32"},
    {"layout --world 256 --ranks-per-host 8 --tp 8 --pp 4 --dp 4",
     "--dp = 4: tp x pp x dp must be --world (256); nearest legal: 8"},
    {"layout --world 256 --ranks-per-host 8 --tp 8 --dp 3",
     "--dp = 3: tp x pp x dp must divide --world (256); nearest legal: 2, 4"},
    {"layout --world 256 --ranks-per-host 8 --pp 48", "--pp = 48: pp must divide --world (256); nearest legal: 32, 64"},
    {"layout --world 8 --ranks-per-host 8 --tp 2 --pp 2 --order dp-tp",
     "--order = dp-tp: no such order of the axes, fastest first; nearest legal: tp-pp-dp, tp-dp-pp"},
};
INSTANTIATE_TEST_SUITE_P(Layout, Refuses, ::testing::ValuesIn(kLayout));

constexpr Refusal kCheckpoint[] = {
    {"checkpoint --cost 3min --mtbf 50h --json --plot",
     "--plot: --json prints one object and no picture; leave one out"},
    {"checkpoint --mtbf 50h", "--cost: is needed; write it like --cost 3min"},
    {"checkpoint --cost 3min", "--mtbf: is needed; write it like --mtbf 50h"},
    {"checkpoint --cost 0s --mtbf 50h", "--cost = 0s: must be more than 0; write it like --cost 3min"},
    {"checkpoint --cost -3min --mtbf 50h", "--cost = \"-3min\": must be a number that is not negative"},
    {"checkpoint --cost 3parsec --mtbf 50h", "--cost = \"3parsec\": has the unit \"parsec\"; legal units: ns, us"},
    {"checkpoint --cost 3 --mtbf 50h", "--cost = \"3\": has no unit; legal units: ns, us"},
    {"checkpoint --cost 3min --mtbf 1e300y", "--mtbf = 1e300y: must be at most 30000y; nearest legal: 30000y"},
    {"checkpoint --cost 1e-30s --mtbf 50h", "--cost = 1e-30s: must be at least 1ns; nearest legal: 1ns"},
    {"checkpoint --cost 3min --mtbf 50h --restart -1s", "--restart = \"-1s\": must be a number that is not negative"},
    {"checkpoint --cost 3min --mtbf 50h --interval 15min,,3h", "--interval = 15min,,3h: has an empty entry"},
    {"checkpoint --cost 3min --mtbf 50h --interval 15min,", "has an empty entry; write it like --interval 15min"},
    {"checkpoint --cost 3min --mtbf 50h --interval 0h", "--interval = 0h: must be more than 0"},
    {"checkpoint --cost 3min --mtbf 50h --step 0s", "--step = 0s: must be more than 0; write it like --step 5min"},
};
INSTANTIATE_TEST_SUITE_P(Checkpoint, Refuses, ::testing::ValuesIn(kCheckpoint));

constexpr Refusal kFleet[] = {
    {"fleet --device-mtbf 3y --duration 3w", "--devices: is needed; write it like --devices 4000"},
    {"fleet --devices 4000 --duration 3w", "--device-mtbf: is needed; write it like --device-mtbf 3y"},
    {"fleet --devices 4000 --device-mtbf 3y", "--duration: is needed; write it like --duration 3w"},
    {"fleet --devices 0 --device-mtbf 3y --duration 3w", "--devices = 0: must be a whole number from 1"},
    {"fleet --devices 4000 --device-mtbf 0y --duration 3w", "--device-mtbf = 0y: must be more than 0"},
    {"fleet --devices 4000 --device-mtbf 3y --duration 3x", "--duration = \"3x\": has the unit \"x\""},
    {"fleet --devices 4000 --device-mtbf 3y --duration 3w --cost 0s", "--cost = 0s: must be more than 0"},
    {"fleet --devices 4000 --device-mtbf 3y --duration 3w --restart 3min",
     "--restart = 3min: says nothing without --cost; give both"},
};
INSTANTIATE_TEST_SUITE_P(Fleet, Refuses, ::testing::ValuesIn(kFleet));

constexpr Refusal kMemory[] = {
    {"memory --params 7", "--params = \"7\": has no unit; did you mean 7B (billions), 7M?"},
    {"memory --params 0.5", "--params = \"0.5\": has no unit; did you mean 0.5B (billions), 0.5M?"},
    {"memory --params 7B --device-memory 80",
     "--device-memory = \"80\": has no unit; did you mean 80GB, 80GiB? bytes are written 80B"},
    {"memory --params 7B --device-memory 81559", "did you mean 81559MB, 81559MiB?"},
    {"memory examples/models/gpt2 --device-memory 80", "--device-memory = \"80\": has no unit"},
    {"memory examples/models/gpt2 --family llama", "--family = llama: the model's config.json says gpt2"},
    {"memory examples/models/llama-3-8b --tp 2 --allow-slow-tp",
     "--allow-slow-tp: without a cluster there are no hosts to leave; give --cluster, or leave it out"},
    {"memory", "--params: is needed, or a model; write it like --params 7B"},
    {"memory --params 0", "--params = 0: must be between 1 and 1e15; nearest legal: 1"},
    {"memory --params 1e30", "must be between 1 and 1e15; nearest legal: 1e15"},
    {"memory --params -7B", "--params = \"-7B\": must be a number that is not negative"},
    {"memory --params 7Q", "--params = \"7Q\": has the unit \"Q\"; legal units: K, M, B"},
    {"memory --params 7B --ranks 0", "--ranks = 0: must be a whole number from 1 to 16,777,216; nearest legal: 1"},
    {"memory --params 7B --ranks 1.5", "--ranks = 1.5: must be a whole number"},
    {"memory --params 7B --device-memory 0GB", "--device-memory = 0GB: must be more than 0"},
    {"memory --params 7B --device-memory 9EB", "--device-memory = \"9EB\": has the unit \"EB\"; legal units: B, KB"},
    {"memory --params 7B --precision int8", "--precision = int8: is not known; nearest legal: fp32, bf16, fp16"},
    {"memory --params 7B examples/models/gpt2",
     "--params = 7B: a model says its own number of parameters (124,439,808)"},
    {"memory --params 7B --tp 2", "--tp = 2: says nothing about --params; leave it out, or give a model"},
    {"memory --params 7B --ranks 8 --dp 4", "--dp = 4: says nothing about --params"},
    {"memory --params 7B --zero 9", "--zero = 9: says nothing about --params"},
    {"memory --params 7B --batch 3", "--batch = 3: says nothing about --params"},
    {"memory --params 7B --cluster h100:8", "--cluster = h100:8: says nothing about --params"},
    {"memory --params 7B --framework megatron", "--framework = megatron: says nothing about --params"},
    {"memory examples/models/gpt2 --ranks 8", "--ranks = 8: with a model the layout says how many ranks there are (1)"},
    {"memory examples/models/nope", "examples/models/nope: there is no such file or directory"},
    {"memory examples/models/gpt2 --layers 3", "--layers = 3: the model's config.json says 12; leave it out"},
    {"memory examples/models/gpt2 --vocabulary 5", "--vocabulary = 5: the model's config.json says 50257"},
    {"memory examples/models/llama-3-8b --tied",
     "--tied: the model's config.json says that embedding and head are two"},
    {"memory --layers 3", "--hidden: is needed; write it like --hidden 4096"},
    {"memory --hidden 64", "--heads: is needed; write it like --heads 32"},
    {"memory --layers 1 --hidden 64 --heads 3", "--hidden = 64: must be divisible by --heads (3)"},
    {"memory --layers 1 --hidden 64 --heads 4 --kv-heads 3", "error: --kv-heads = 3: must divide --heads (4)"},
    {"memory --layers 1 --hidden 64 --heads 4 --head-dim 3", "error: --head-dim = 3: must be even"},
    {"memory --layers 1M --hidden 64 --heads 4", "error: --layers = 1000000: must be an integer from 1 to 100,000"},
    {"memory --family gpt2 --layers 2 --hidden 64 --heads 4 --kv-heads 2",
     "--kv-heads = 2: gpt2 has as many key heads as query heads (4), of hidden / heads (16); use --family llama"},
    {"memory --family gpt2 --layers 2 --hidden 64 --heads 4 --head-dim 32", "--head-dim = 32: gpt2 has as many key"},
    {"memory --family gpt2 --layers 2 --hidden 64 --heads 4 --positions 64 --sequence 128",
     "--sequence = 128: the model has 64 positions"},
    {"memory --family bert --layers 2 --hidden 64 --heads 4", "--family = bert: is not known; nearest legal: llama"},
    {"memory examples/models/gpt2 --tp 5", "--tp = 5: tp must divide the heads (12); nearest legal: 4, 6"},
    {"memory examples/models/gpt2 --pp 13", "--pp = 13: pp x interleave (13) must be at most the layers (12)"},
    {"memory examples/models/gpt2 --pp 12 --interleave 2", "--pp = 12: pp x interleave (24)"},
    {"memory examples/models/gpt2 --schedule gpipe --interleave 2 --pp 2",
     "--interleave = 2: several chunks a stage need the interleaved schedule, not gpipe; nearest legal: 1, or "
     "--schedule interleaved"},
    {"memory examples/models/gpt2 --tp 16M --pp 16M --dp 16M", "--pp = 16000000: tp x pp x dp must be at most"},
    {"memory examples/models/gpt2 --tp 12 --pp 12 --dp 16M --batch 8", "--dp = 16000000: tp x pp x dp must be at most"},
    {"memory examples/models/gpt2 --dp 16M --micro-batch 16M",
     "--micro-batch = 16M: micro-batch x dp x pp must be at most 16,777,216 sequences, or --batch be given"},
    {"memory examples/models/gpt2 --batch 7 --dp 2",
     "--batch = 7: micro-batch x dp (1 x 2) must divide it; nearest legal: 6, 8"},
    {"memory examples/models/gpt2 --sequence 1025", "--sequence = 1025: the model has 1024 positions"},
    {"memory examples/models/gpt2 --sequence 0", "--sequence = 0: must be a whole number from 1"},
    {"memory examples/models/gpt2 --sequence-parallel on",
     "--sequence-parallel = on: cuts the sequence over tensor-parallel ranks, and --tp is 1; nearest legal: off"},
    {"memory examples/models/gpt2 --sequence-parallel yes", "--sequence-parallel = yes: is not known"},
    {"memory examples/models/gpt2 --sequence-parallel on --tp 2 --sequence 7",
     "--sequence = 7: sequence parallelism needs a sequence that tp (2) divides; nearest legal: 6, 8"},
    {"memory examples/models/gpt2 --order pp-tp", "--order = pp-tp: is not known; nearest legal: tp-pp-dp, tp-dp-pp"},
    {"memory examples/models/gpt2 --schedule foo", "--schedule = foo: is not known; nearest legal: gpipe, 1f1b"},
    {"memory examples/models/gpt2 --recompute some", "--recompute = some: there is no such kind of recompute"},
    {"memory examples/models/gpt2 --zero 4", "--zero = 4: ZeRO has four stages; nearest legal: 0, 1, 2, 3"},
    {"memory examples/models/gpt2 --devices 8",
     "--devices = 8: without --cluster the layout says how many devices there are (1)"},
    {"memory examples/models/gpt2 --framework nope", "--framework = nope: the calibration has none of this name"},
    {"memory examples/models/gpt2 --calibration /nope", "--calibration = /nope: there is no such file"},
    {"memory examples/models/gpt2 --calibration /", "--calibration = /: is a directory"},
};
INSTANTIATE_TEST_SUITE_P(Memory, Refuses, ::testing::ValuesIn(kMemory));

constexpr Refusal kModel[] = {
    {"", "model: is needed; give a config.json, or --layers, --hidden and --heads"},
    {"examples/models/gpt2 --batch 8", "--cluster: is needed; a file, or a preset: a100-40"},
    {"examples/models/gpt2 --cluster h100:8", "--batch: is needed; write it like --batch 1024"},
    {"examples/models/gpt2 --cluster h100:8 --batch 0", "--batch = 0: must be a whole number from 1"},
    {"examples/models/gpt2 --cluster h100:8 --batch -1", "--batch = -1: must be a whole number from 1"},
    {"examples/models/gpt2 --cluster h100:8 --batch 17M", "nearest legal: 16777216"},
    {"examples/models/gpt2 --cluster h101:8 --batch 8", "error: --cluster = h101:8: is no file and no preset"},
    {"examples/models/gpt2 --cluster h100:12 --batch 8", "error: --cluster = 12: must be whole hosts of 8 devices"},
    {"examples/models/gpt2 --cluster h100:0 --batch 8", "error: --cluster = 0: must be at least 1"},
    {"examples/models/gpt2 --cluster / --batch 8", "error: --cluster = /: is a directory"},
    {"examples/models/gpt2 --cluster h100:64 --devices 12 --batch 8",
     "--devices = 12: must be whole hosts of 8 devices, or less than one host; nearest legal: 8, 16"},
    {"examples/models/gpt2 --cluster h100:8 --batch 8 --rank-by speed",
     "--rank-by = speed: is not known; nearest legal: time, cost, headroom"},
    {"examples/models/gpt2 --cluster h100:8 --batch 8 --top 0",
     "--top = 0: must be between 1 and 1000; nearest legal: 1"},
    {"examples/models/gpt2 --cluster h100:8 --batch 8 --top 2000", "nearest legal: 1000"},
    {"examples/models/gpt2 --cluster h100:8 --batch 512 --top 5 --explain 9",
     "--explain = 9: must be between 1 and 5, the layouts of the list; nearest legal: 5"},
    {"examples/models/gpt2 --cluster h100:8 --batch 8 --device-memory 0GB", "--device-memory = 0GB: must be more"},
    {"examples/models/gpt2 --cluster h100:8 --batch 8 --device-memory 80", "--device-memory = \"80\": has no unit"},
    {"examples/models/gpt2 --cluster h100:8 --batch 8 --sequence 2048", "--sequence = 2048: the model has 1024"},
    {"examples/models/gpt2 --cluster h100:8 --batch 512 --tp 16",
     "--tp = 16: tensor parallelism would leave the host (8 devices)"},
    {"examples/models/gpt2 --cluster h100:8 --batch 512 --pp 3",
     "--pp = 3: tp x pp (1 x 3) must divide the devices (8); nearest legal: 2, 4"},
    {"examples/models/gpt2 --cluster h100:8 --batch 512 --dp 3",
     "--dp = 3: must divide the devices (8); nearest legal: 2, 4"},
    {"examples/models/gpt2 --cluster h100:8 --batch 512 --tp 2 --pp 2 --dp 4",
     "--dp = 4: tp x pp x dp must be the devices (8); nearest legal: 2"},
    {"examples/models/gpt2 --cluster h100:8 --batch 512 --micro-batch 3",
     "--batch = 512: micro-batch x dp (3 x 8) must divide it; nearest legal: 504, 528"},
    {"examples/models/gpt2 --cluster h100:8 --batch 512 --interleave 7",
     "--interleave = 7: with 2 stages or more, pp x interleave must be at most the layers (12); nearest legal: 6"},
    {"examples/models/gpt2 --cluster h100:8 --batch 512 --zero 3 --dp 1", "--zero = 3: one data rank has nobody to"},
    {"examples/models/gpt2 --cluster h100:8 --batch 512 --pp 8 --schedule interleaved",
     "--schedule = interleaved: needs at least 2 chunks a stage"},
    {"examples/models/gpt2 --cluster h100:8 --batch 8 --why-not tp", "--why-not = tp: must be a list of name=value"},
    {"examples/models/gpt2 --cluster h100:8 --batch 8 --why-not foo=3", "--why-not = foo: is no part of a layout"},
    {"examples/models/gpt2 --cluster h100:8 --batch 8 --why-not pp=",
     "--why-not pp: is needed; write it like "
     "--why-not pp=4"},
    {"examples/models/gpt2 --cluster h100:8 --batch 8 --why-not tp=2,tp=4", "--why-not = tp=2,tp=4: gives tp twice"},
    {"examples/models/gpt2 --cluster h100:8 --batch 8 --why-not zero=4", "--why-not zero = 4: ZeRO has four stages"},
};
INSTANTIATE_TEST_SUITE_P(Model, Refuses, ::testing::ValuesIn(kModel));

constexpr Refusal kAxes[] = {
    {"axes", "model: is needed"},
    {"axes examples/models/gpt2 --batch 8", "--cluster: is needed"},
    {"axes examples/models/gpt2 --cluster h100:8", "--batch: is needed"},
    {"axes examples/models/gpt2 --cluster h100:8 --batch 64 --tp 5", "--tp = 5: tp must divide the heads (12)"},
    {"axes examples/models/gpt2 --cluster h100:16 --batch 64 --tp 16",
     "--tp = 16: tensor parallelism would leave the host (8 devices): every layer would exchange over the network "
     "(--allow-slow-tp permits it); nearest legal: 4"},
    {"axes examples/models/gpt2 --cluster h100:8 --batch 64 --tp 4 --pp 2 --dp 2",
     "--dp = 2: tp x pp x dp must be the devices (8); nearest legal: 1"},
    {"axes examples/models/gpt2 --cluster h100:8 --batch 63",
     "--batch = 63: micro-batch x dp (1 x 8) must divide it; nearest legal: 56, 64"},
    {"axes examples/models/gpt2 --cluster h100:8 --batch 62 --pp 4 --interleave 3",
     "--batch = 62: the interleaved schedule needs micro-batches (31) that pp (4) divides; nearest legal: 56, 64"},
};
INSTANTIATE_TEST_SUITE_P(Axes, Refuses, ::testing::ValuesIn(kAxes));

TEST(Plan, UnknownWordsAreUsageErrors) {
  const testing::ProgramRun word = testing::run_trireme("plan flet");
  EXPECT_EQ(word.code, 2);
  EXPECT_NE(word.error.find("flet"), std::string::npos) << word.error;
  EXPECT_NE(word.error.find("did you mean trireme plan fleet?"), std::string::npos) << word.error;
  for (const char* arguments : {"plan memroy --params 7B", "plan comm --bytes 3GB"}) {
    const testing::ProgramRun command = testing::run_trireme(arguments);
    EXPECT_EQ(command.code, 2);
    EXPECT_NE(command.error.find("did you mean trireme plan "), std::string::npos) << command.error;
  }
  // By name, whatever else is missing, and with what there is.
  for (const char* command : {"plan", "plan memory", "plan comms", "plan bubble", "plan layout", "plan checkpoint",
                              "plan fleet", "plan validate", "plan axes", "train", "verify", "bench step",
                              "bench machine", "drill", "sample", "model", "data tokenize", "checkpoint export"}) {
    const testing::ProgramRun run = testing::run_trireme(std::string(command) + " --cp 2");
    EXPECT_EQ(run.code, 2) << command;
    EXPECT_NE(run.error.find("error: --cp: "), std::string::npos) << command << "\n" << run.error;
    EXPECT_NE(run.error.find("context parallelism is not planned"), std::string::npos) << command << "\n" << run.error;
  }
  const testing::ProgramRun flag = testing::run_trireme("plan checkpoint --coast 3min");
  EXPECT_EQ(flag.code, 2);
  EXPECT_NE(flag.error.find("did you mean --cost?"), std::string::npos) << flag.error;
}

}  // namespace
}  // namespace trireme
