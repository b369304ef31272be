// Plans whose all_reduces are calls of a collective library are proven, and do in every order what the program means.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "support/random_program.hpp"
#include "support/run.hpp"
#include "tileway/explore.hpp"
#include "tileway/ops.hpp"
#include "tileway/verify.hpp"

namespace tileway {
namespace {

constexpr const char* kOperators[] = {"gemm_all_reduce", "all_reduce_rms_norm", "gemv_all_reduce"};

Topology with_library(int ranks, int lanes, int copy = 1) {
  return Topology::parse(fmt::format("ranks={},lanes={},copy={},collective=1", ranks, lanes, copy));
}

// Every all_reduce by the library; overlapped, or not.
std::vector<Schedule> schedules_of(Program& program) {
  Schedule unfused = Schedule::unfused(program);
  for (std::size_t i = 0; i < program.ops().size(); ++i) {
    if (program.ops()[i].kind == OpKind::all_reduce)
      unfused.engine(Tensor(&program, static_cast<int>(i)), Engine::collective);
  }
  return {Schedule::collective(program), unfused};
}

TEST(Collectives, AreProvenForEveryNumberOfRanksOverlappedAndUnfused) {
  for (const char* name : kOperators) {
    for (int ranks : {2, 3, 4, 5, 8}) {
      Program program = make_program(find_operator(name), ranks, DType::bf16, {});
      for (const Topology& topology : {with_library(ranks, 2), with_library(ranks, 124, 2)}) {
        for (const Schedule& schedule : schedules_of(program)) {
          const Verdict verdict = verify(lower(program, schedule, topology).plan);
          EXPECT_TRUE(verdict.proven()) << name << " " << schedule.name() << " " << topology.to_text() << "\n"
                                        << (verdict.proven() ? "" : verdict.refusal->text);
        }
      }
    }
  }
}

TEST(Collectives, HaveNoFindingAndOneOutcomeInEveryOrder) {
  for (const char* name : kOperators) {
    for (int ranks : {2, 3, 4, 5, 8}) {
      Program program = make_program(find_operator(name), ranks, DType::bf16, {});
      for (const Schedule& schedule : schedules_of(program)) {
        const Plan plan = lower(program, schedule, with_library(ranks, 2)).plan;
        const std::uint64_t outcome = explore(plan, 0).outcome;
        for (std::uint64_t seed = 0; seed < 10; ++seed) {
          const Exploration exploration = explore(plan, seed);
          ASSERT_FALSE(exploration.finding) << name << " seed " << seed << ": " << exploration.finding->text;
          ASSERT_EQ(exploration.outcome, outcome) << name << " seed " << seed;
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
    if (run > 0 && program.ops().end() != std::find_if(program.ops().begin(), program.ops().end(),
                                                       [](const Op& op) { return op.kind == OpKind::update; }))
      break;  // what the first run has left is not given again
    Bindings copy = inputs[run];
    testing::expect_same(interpret(program, copy), result.outputs[run], fmt::format("{} run {}", context, run));
  }
}

TEST(Collectives, GiveTheInterpretersValuesInEveryOrder) {
  for (const char* name : kOperators) {
    for (int ranks : {2, 3, 5}) {
      const Operator& op = find_operator(name);
      Program program = make_program(op, ranks, DType::bf16, std::vector<std::int64_t>(op.extents.size(), 24));
      for (const Schedule& schedule : schedules_of(program)) {
        const Plan plan = lower(program, schedule, with_library(ranks, 2)).plan;
        for (std::uint64_t seed = 0; seed < kAdversaryCount; ++seed)
          expect_values(program, plan, seed, fmt::format("{} {} seed {}", name, schedule.name(), seed));
      }
    }
  }
}

// Two all_reduces over two groups that share a rank, and one over all.
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
      const Verdict verdict = verify(plan);
      ASSERT_TRUE(verdict.proven()) << "seed " << seed << "\n" << program.to_text() << verdict.refusal->text;
      expect_values(program, plan, seed, fmt::format("seed {}", seed));
      ASSERT_FALSE(HasFailure()) << program.to_text();
    }
  }
  EXPECT_GT(called, 30);
}

}  // namespace
}  // namespace tileway
