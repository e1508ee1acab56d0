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
    {"layout --world 256 --ranks-per-host 8 --pp 48", "--pp = 48: pp must divide --world (256); nearest legal: 32, 64"},
    {"layout --world 8 --ranks-per-host 8 --tp 2 --pp 2 --order dp-tp",
     "--order = dp-tp: no such order of the axes, fastest first; nearest legal: tp-pp-dp, tp-dp-pp"},
};
INSTANTIATE_TEST_SUITE_P(Layout, Refuses, ::testing::ValuesIn(kLayout));

constexpr Refusal kCheckpoint[] = {
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

TEST(Plan, UnknownWordsAreUsageErrors) {
  const testing::ProgramRun word = testing::run_trireme("plan flet");
  EXPECT_EQ(word.code, 2);
  EXPECT_NE(word.error.find("flet"), std::string::npos) << word.error;
  const testing::ProgramRun flag = testing::run_trireme("plan checkpoint --coast 3min");
  EXPECT_EQ(flag.code, 2);
  EXPECT_NE(flag.error.find("did you mean --cost?"), std::string::npos) << flag.error;
}

}  // namespace
}  // namespace trireme
