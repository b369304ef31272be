// Plans whose communications are calls of a collective library are proven, touch no other rank's memory, and do in
// every order what the program means.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "support/communications.hpp"
#include "support/quick.hpp"
#include "support/random_program.hpp"
#include "support/run.hpp"
#include "tileway/explore.hpp"
#include "tileway/ops.hpp"
#include "tileway/verify.hpp"

namespace tileway {
namespace {

Topology with_library(int ranks, int lanes, int copy = 1) {
  return Topology::parse(fmt::format("ranks={},lanes={},copy={},collective=1", ranks, lanes, copy));
}

bool has(const Program& program, OpKind kind) {
  return std::any_of(program.ops().begin(), program.ops().end(), [&](const Op& op) { return op.kind == kind; });
}

// Everything that can be by the library; overlapped, or not.
std::vector<Schedule> schedules_of(Program& program) {
  Schedule unfused = Schedule::unfused(program);
  for (std::size_t i = 0; i < program.ops().size(); ++i) {
    const OpKind kind = program.ops()[i].kind;
    if (is_communication(kind) && kind != OpKind::all_to_all_v)
      unfused.engine(Tensor(&program, static_cast<int>(i)), Engine::collective);
  }
  return {Schedule::collective(program), unfused};
}

void expect_proven(const Program& program, const Plan& plan, const std::string& context) {
  const Verdict verdict = verify(plan);
  EXPECT_TRUE(verdict.proven()) << context << "\n" << (verdict.proven() ? "" : verdict.refusal->text);
  EXPECT_EQ(plan.reaches_peers(), has(program, OpKind::all_to_all_v) && program.world() > 1) << context;
}

TEST(Collectives, AreProvenForEveryNumberOfRanksOverlappedAndUnfused) {
  for (const Operator& op : operators()) {
    for (int ranks : {1, 2, 3, 5, 8}) {
      Program program = make_program(op, ranks, DType::bf16, {});
      for (const Topology& topology : {with_library(ranks, 2), with_library(ranks, 124, 2)}) {
        for (const Schedule& schedule : schedules_of(program)) {
          expect_proven(program, lower(program, schedule, topology).plan,
                        fmt::format("{} {} {}", op.name, schedule.name(), topology.to_text()));
        }
      }
    }
  }
}

TEST(Collectives, HaveNoFindingAndOneOutcomeInEveryOrder) {
  for (const Operator& op : operators()) {
    for (int ranks : {2, 3, 5, 8}) {
      Program program = make_program(op, ranks, DType::bf16, {});
      for (const Schedule& schedule : schedules_of(program)) {
        const Plan plan = lower(program, schedule, with_library(ranks, 2)).plan;
        const std::uint64_t outcome = explore(plan, 0).outcome;
        for (std::uint64_t seed = 0; seed < 10; ++seed) {
          const Exploration exploration = explore(plan, seed);
          ASSERT_FALSE(exploration.finding) << op.name << " seed " << seed << ": " << exploration.finding->text;
          ASSERT_EQ(exploration.outcome, outcome) << op.name << " seed " << seed;
        }
      }
    }
  }
}

void expect_values(const Program& program, const Plan& plan, std::uint64_t seed, const std::string& context) {
  const std::vector<PartsByName> inputs{random_inputs(program, seed, Fill::integers),
                                        random_inputs(program, seed + 1, Fill::integers)};
  const ValueExploration result = explore_values(plan, seed, inputs);
  ASSERT_FALSE(result.exploration.finding) << context << ": " << result.exploration.finding->text;
  for (std::size_t run = 0; run < inputs.size(); ++run) {
    if (run > 0 && has(program, OpKind::update)) break;  // what the first run has left is not given again
    Bindings copy = inputs[run];
    testing::expect_same(interpret(program, copy), result.outputs[run], fmt::format("{} run {}", context, run));
  }
}

TEST(Collectives, GiveTheInterpretersValuesInEveryOrder) {
  for (const Operator& op : operators()) {
    for (int ranks : {1, 2, 3, 5, 8}) {
      for (std::int64_t extent : {3, 24}) {  // fewer rows than ranks
        Program program = make_program(op, ranks, DType::bf16, std::vector<std::int64_t>(op.extents.size(), extent));
        for (const Schedule& schedule : schedules_of(program)) {
          const Plan plan = lower(program, schedule, with_library(ranks, 2)).plan;
          for (std::uint64_t seed = 0; seed < kAdversaryCount; ++seed)
            expect_values(program, plan, seed, fmt::format("{} {} seed {}", op.name, schedule.name(), seed));
        }
      }
    }
  }
}

TEST(Collectives, OfEveryKindAndEveryCutGiveTheInterpretersValues) {
  const bool quick = testing::quick();
  for (int ranks : quick ? std::vector{1, 2, 3} : std::vector{1, 2, 3, 5, 8}) {
    Program program = testing::every_communication(ranks);
    for (const Schedule& schedule : schedules_of(program)) {
      for (int lanes : {2, 20}) {
        const Plan plan = lower(program, schedule, with_library(ranks, lanes)).plan;
        const std::string context = fmt::format("{} ranks, {} lanes, {}", ranks, lanes, schedule.name());
        expect_proven(program, plan, context);
        EXPECT_EQ(fingerprint(plan_from_json(to_json(plan))), fingerprint(plan));
        const std::uint64_t seeds = lanes == 2 && ranks <= 3 && !quick ? kAdversaryCount : 1;
        for (std::uint64_t seed = 0; seed < seeds; ++seed) expect_values(program, plan, seed, context);
      }
    }
  }
}

TEST(Collectives, OfTilesThatAreNotContiguousArePacked) {
  Program program("tiles", 3);
  const Tensor gathered = all_gather(program.input("x", DType::f16, {9, 12, 4}, Shard(1)) + 1.0);
  const Tensor scattered = reduce_scatter(program.input("z", DType::f16, {9, 12, 4}, Partial()) * 2.0, 0);
  program.output("gathered", gathered);
  program.output("scattered", scattered);
  for (const Shape& tile : {Shape{2, 3, 3}, Shape{0, 1, 2}, Shape{1, 0, 0}}) {
    for (int group : {1, 3}) {
      Schedule schedule = Schedule::collective(program);
      schedule.tile(gathered, tile).tile(scattered, tile).group(gathered, group);
      const Plan plan = lower(program, schedule, with_library(3, 2)).plan;
      expect_proven(program, plan, to_string(tile));
      expect_values(program, plan, 1, to_string(tile));
    }
  }
}

// From each rank to the next but one, from a group to another, and a scalar.
TEST(Collectives, SendBetweenGroupsThatShareRanks) {
  Program program("send", 4);
  const int front = program.group({0, 1});
  const int back = program.group({2, 3});
  const int middle = program.group({1, 2});
  const int one = program.group({0});
  const int other = program.group({3});
  const Tensor x = program.input("x", DType::f32, {7, 5}, Shard(0), front);
  const Tensor y = program.input("y", DType::i32, {6}, Replicate(), front);
  const Tensor z = program.input("z", DType::bf16, {4, 4}, Partial(), middle);
  const Tensor s = program.input("s", DType::f32, {}, Replicate(), one);
  program.output("x", send(x * 2.0, back));
  program.output("y", send(y, middle));
  program.output("z", all_reduce(send(z, back)));
  program.output("s", send(s + 1.0, other));
  for (const Schedule& schedule : schedules_of(program)) {
    const Plan plan = lower(program, schedule, Topology::parse("ranks=4,lanes=2,copy=1,collective=5")).plan;
    expect_proven(program, plan, schedule.name());
    for (std::uint64_t seed = 0; seed < kAdversaryCount; ++seed) expect_values(program, plan, seed, schedule.name());
  }
}

// All_reduces over two groups that share a rank, and over all.
Program several_groups() {
  Program p("several groups", 4);
  const int front = p.group({0, 1, 2});
  const int back = p.group({2, 3});
  const Tensor x = p.input("x", DType::f32, {40, 30}, Partial(), front);
  const Tensor y = p.input("y", DType::f32, {50, 7}, Partial(ReduceOp::max), back);
  const Tensor z = p.input("z", DType::f32, {12, 90}, Partial());
  p.output("x", all_reduce(x) * all_reduce(x));
  p.output("y", all_reduce(y));
  p.output("z", all_reduce(z));
  return p;
}

TEST(Collectives, OfSeveralGroupsHaveALaneForEachGroup) {
  const Program program = several_groups();
  const Plan plan =
      lower(program, Schedule::collective(program), Topology::parse("ranks=4,lanes=2,copy=1,collective=3")).plan;
  std::map<int, std::size_t> lanes;
  for (const Lane& lane : plan.lanes) lanes[lane.rank] += lane.engine == Engine::collective;
  EXPECT_EQ(lanes, (std::map<int, std::size_t>{{0, 2}, {1, 2}, {2, 3}, {3, 2}}));
  EXPECT_TRUE(verify(plan).proven());
  for (std::uint64_t seed = 0; seed < kAdversaryCount; ++seed)
    expect_values(program, plan, seed, fmt::format("seed {}", seed));
}

TEST(Collectives, OfRandomProgramsAreProvenAndGiveTheInterpretersValues) {
  int called = 0;
  for (std::uint64_t seed = 1; seed <= 120; ++seed) {
    testing::RandomProgram generator(seed);
    Program program = generator.program();
    for (const Schedule& schedule : schedules_of(program)) {
      const Plan plan = lower(program, schedule, with_library(program.world(), 2)).plan;
      called += std::any_of(plan.lanes.begin(), plan.lanes.end(),
                            [](const Lane& lane) { return lane.engine == Engine::collective; });
      expect_proven(program, plan, fmt::format("seed {}", seed));
      expect_values(program, plan, seed, fmt::format("seed {}", seed));
      ASSERT_FALSE(HasFailure()) << program.to_text();
    }
  }
  EXPECT_GT(called, 150);
}

}  // namespace
}  // namespace tileway
