#include <algorithm>

#include <gtest/gtest.h>

#include "model/test_configs.h"
#include "plan/program_check.h"
#include "plan/test_random_layouts.h"

namespace trireme::plan {
namespace {

TEST(Program, OfEveryRankOfRandomLayoutsPassesItsCheck) {
  int programs = 0;
  for (const RandomLayout& r : random_layouts(200, 7)) {
    const model::ParameterTable table = model::make_parameter_table(r.config);
    for (int rank = 0; rank < r.layout.world(); ++rank) {
      ASSERT_EQ(check_program(table, r.layout, r.batch, make_program(table, r.layout, r.batch, rank)), "")
          << describe(r.layout) << " rank " << rank;
      ASSERT_EQ(check_program(table, r.layout, r.batch, make_evaluation_program(table, r.layout, r.batch, rank)), "")
          << describe(r.layout) << " rank " << rank;
      ++programs;
    }
  }
  EXPECT_GT(programs, 1000);
}

// Sends of a rank meet the receives of its peers, in order, on every pair of ranks.
TEST(Program, TransfersMeet) {
  for (const RandomLayout& r : random_layouts(80, 8)) {
    const model::ParameterTable table = model::make_parameter_table(r.config);
    using Message = std::tuple<bool, int>;  // activation, micro-batch
    std::map<std::pair<int, int>, std::vector<Message>> sent, received;
    for (int rank = 0; rank < r.layout.world(); ++rank) {
      for (const Instruction& i : make_program(table, r.layout, r.batch, rank).instructions) {
        if (i.op == Op::kSendActivation || i.op == Op::kSendGradient) {
          sent[{rank, i.peer}].emplace_back(i.op == Op::kSendActivation, i.micro_batch);
        }
        if (i.op == Op::kReceiveActivation || i.op == Op::kReceiveGradient) {
          received[{i.peer, rank}].emplace_back(i.op == Op::kReceiveActivation, i.micro_batch);
        }
      }
    }
    EXPECT_EQ(sent, received) << describe(r.layout);
  }
}

TEST(Program, OneRankIsTheDegenerateProgram) {
  const model::Config c = model::small_llama();
  const model::ParameterTable table = model::make_parameter_table(c);
  const RankProgram program = make_program(table, {}, {.global_batch = 1, .micro_batch = 1, .sequence = 8}, 0);
  std::string work;
  for (const Instruction& i : program.instructions) {
    switch (i.op) {
      case Op::kForward:
        work += "F" + std::to_string(i.unit) + " ";
        break;
      case Op::kBackwardInput:
        work += "B" + std::to_string(i.unit) + " ";
        break;
      case Op::kBackwardWeight:
        work += "W" + std::to_string(i.unit) + " ";
        break;
      case Op::kAllocate:
      case Op::kFree:
        break;
      default:
        work += std::string(op_name(i.op)) + " ";
    }
  }
  EXPECT_EQ(work, "F0 F1 F2 F3 B3 B2 W2 B1 W1 W0 gradient norm update update update update ");
}

TEST(Program, ZeroThreeGathersAheadAndReleases) {
  for (const RandomLayout& r : random_layouts(300, 9)) {
    if (r.layout.zero != 3 || r.layout.dp == 1) continue;
    const model::ParameterTable table = model::make_parameter_table(r.config);
    int held = 0, most = 0;
    for (const Instruction& i : make_program(table, r.layout, r.batch, 0).instructions) {
      held += i.op == Op::kGather ? 1 : i.op == Op::kRelease ? -1 : 0;
      most = std::max(most, held);
    }
    EXPECT_EQ(held, 0);
    EXPECT_LE(most, r.layout.prefetch + 2);  // a tied head needs two at once
  }
}

// With one replica there is nothing to shard: the very same program.
TEST(Program, ZeroStagesAreTheSameWhereNothingIsSharded) {
  for (RandomLayout r : random_layouts(60, 13)) {
    r.layout.dp = 1;
    r.layout.all_reduce = ReduceAlgorithm::kOrdered;
    r.batch.global_batch = r.batch.micro_batch * r.layout.pp * 2;
    const model::ParameterTable table = model::make_parameter_table(r.config);
    const int rank = r.layout.world() - 1;
    r.layout.zero = 0;
    const RankProgram plain = make_program(table, r.layout, r.batch, rank);
    for (int zero = 1; zero <= 3; ++zero) {
      r.layout.zero = zero;
      EXPECT_EQ(make_program(table, r.layout, r.batch, rank).instructions, plain.instructions) << describe(r.layout);
    }
  }
}

struct Fault {
  const char* name;
  std::function<void(std::vector<Instruction>&)> plant;
};

TEST(ProgramCheck, FindsPlantedFaults) {
  const model::Config c = model::small_llama();
  const Layout layout{.dp = 2, .zero = 3, .recompute = model::Recompute::kFull, .reduce = ReduceWhen::kMicrobatch};
  const Batch batch{.global_batch = 4, .micro_batch = 1, .sequence = 8};
  const model::ParameterTable table = model::make_parameter_table(c);
  const auto first = [](std::vector<Instruction>& list, Op op) {
    return std::find_if(list.begin(), list.end(), [&](const Instruction& i) { return i.op == op; });
  };
  std::vector<Fault> faults;
  for (Op op : {Op::kAllocate, Op::kFree, Op::kGather, Op::kRelease, Op::kForward, Op::kBackwardInput,
                Op::kBackwardWeight, Op::kOpenGradient, Op::kCloseGradient, Op::kRecompute, Op::kReduce, Op::kUpdate}) {
    faults.push_back({op_name(op).data(), [=](std::vector<Instruction>& list) { list.erase(first(list, op)); }});
    faults.push_back({"twice", [=](std::vector<Instruction>& list) {
                        const Instruction copy = *first(list, op);
                        list.insert(first(list, op), copy);
                      }});
  }
  for (const Fault& fault : faults) {
    RankProgram program = make_program(table, layout, batch, 0);
    ASSERT_EQ(check_program(table, layout, batch, program), "");
    fault.plant(program.instructions);
    EXPECT_NE(check_program(table, layout, batch, program), "") << fault.name;
  }
}

TEST(ProgramCheck, FindsFaultsOfTheEndOfAStep) {
  model::Config c = model::small_llama();
  c.tied_embeddings = true;
  const Layout layout{.pp = 2, .dp = 2, .zero = 1};
  const Batch batch{.global_batch = 4, .micro_batch = 1, .sequence = 8};
  const model::ParameterTable table = model::make_parameter_table(c);
  const RankProgram right = make_program(table, layout, batch, 0);
  ASSERT_EQ(check_program(table, layout, batch, right), "");
  const auto tied_buffer = [](const Instruction& i) {
    return i.tied_head && (i.op == Op::kAllocateBoundary || i.op == Op::kFreeBoundary);
  };
  RankProgram homeless = right;
  EXPECT_EQ(std::erase_if(homeless.instructions, tied_buffer), 2U);
  EXPECT_NE(check_program(table, layout, batch, homeless), "");
  for (Op op : {Op::kReduce, Op::kUpdate, Op::kGatherUpdated}) {
    RankProgram wrong = right;
    EXPECT_GT(std::erase_if(wrong.instructions, [&](const Instruction& i) { return i.op == op; }), 0U);
    EXPECT_NE(check_program(table, layout, batch, wrong), "") << op_name(op);
  }
  RankProgram twice = right;
  twice.instructions.push_back({.op = Op::kGradientNorm});
  EXPECT_NE(check_program(table, layout, batch, twice), "");
  // Of the two stages only the one that sends the copy's gradient needs no room for it.
  const RankProgram last = make_program(table, layout, batch, 1);
  EXPECT_EQ(std::count_if(last.instructions.begin(), last.instructions.end(), tied_buffer), 0);
}

TEST(ProgramCheck, FindsAnEvaluationWithoutItsLoss) {
  const model::ParameterTable table = model::make_parameter_table(model::small_llama());
  const Batch batch{.global_batch = 1, .micro_batch = 1, .sequence = 8};
  RankProgram program = make_evaluation_program(table, {}, batch, 0);
  ASSERT_EQ(check_program(table, {}, batch, program), "");
  std::erase_if(program.instructions, [](const Instruction& i) { return i.op == Op::kEvaluateLoss; });
  EXPECT_NE(check_program(table, {}, batch, program), "");
}

}  // namespace
}  // namespace trireme::plan
