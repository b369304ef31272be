// Adversarial orders find what is wrong with a plan, and nothing in a plan that was proven.
#include <fmt/format.h>

#include "plan/edit.hpp"
#include "support/oracle.hpp"
#include "support/random_plan.hpp"
#include "support/run.hpp"
#include "tileway/explore.hpp"
#include "tileway/ops.hpp"
#include "tileway/verify.hpp"

namespace tileway {
namespace {

Plan plan_of(const char* name, int ranks, const Topology& topology) {
  const Program program = make_program(find_operator(name), ranks, DType::f32, {});
  return lower(program, Schedule::overlapped(program), topology).plan;
}

TEST(Explore, FindsNothingInProvenPlansAndTheSameOutcomeInEveryOrder) {
  for (const Operator& op : operators()) {
    for (int ranks : {2, 3, 5, 8}) {
      const Program program = make_program(op, ranks, DType::f32, {});
      for (const char* rest : {"lanes=2,copy=1", "lanes=2,copy=1,library=1", "lanes=3,copy=0,movers=1"}) {
        const Topology topology = Topology::parse(fmt::format("ranks={},{}", ranks, rest));
        const Schedule schedule = topology.library > 0 ? Schedule::library(program) : Schedule::overlapped(program);
        const Plan plan = lower(program, schedule, topology).plan;
        const std::uint64_t outcome = explore(plan, 0).outcome;
        for (std::uint64_t seed = 0; seed < 20; ++seed) {
          const Exploration exploration = explore(plan, seed);
          ASSERT_FALSE(exploration.finding) << op.name << " seed " << seed << ": " << exploration.finding->text;
          ASSERT_EQ(exploration.outcome, outcome) << op.name << " seed " << seed;
        }
      }
    }
  }
}

TEST(Explore, ComputesTheInterpretersValuesInEveryOrder) {
  for (const Operator& op : operators()) {
    for (int ranks : {2, 3}) {
      const std::vector<std::int64_t> size(op.extents.size(), 24);
      const Program program = make_program(op, ranks, DType::bf16, size);
      const Plan plan = lower(program, Schedule::overlapped(program), testing::small_topology(ranks)).plan;
      std::vector<PartsByName> inputs;
      std::vector<Bindings> expected;
      for (std::uint64_t run = 0; run < 3; ++run) {
        inputs.push_back(random_inputs(program, run, Fill::integers));  // and with them random splits
        Bindings copy = inputs.back();
        expected.push_back(interpret(program, copy));
      }
      for (std::uint64_t seed = 0; seed < kAdversaryCount; ++seed) {
        const ValueExploration result = explore_values(plan, seed, inputs);
        ASSERT_FALSE(result.exploration.finding) << op.name << ": " << result.exploration.finding->text;
        for (std::size_t run = 0; run < inputs.size(); ++run) {
          testing::expect_same(expected[run], result.outputs[run],
                               fmt::format("{} seed {} run {}", op.name, seed, run));
        }
      }
    }
  }
}

TEST(Explore, RunsThePlanOfEightGpus) {
  const Program program =
      make_program(find_operator("gemm_all_reduce"), 8, DType::bf16, std::vector<std::int64_t>{4096, 8192, 4096});
  const Plan plan = lower(program, Schedule::overlapped(program), Topology::gpus(8)).plan;
  for (std::uint64_t seed = 0; seed < kAdversaryCount; ++seed) {
    const Exploration exploration = explore(plan, seed);
    EXPECT_FALSE(exploration.finding) << exploration.finding->text;
    EXPECT_EQ(exploration.steps, plan.tasks.size() * 2 * 3 + 8 * 3);
  }
}

TEST(Explore, AgreesWithEveryOrderOnRandomPlans) {
  int found = 0;
  int faulty = 0;
  for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
    const Plan plan = testing::random_plan(seed);
    const testing::Oracle oracle =
        testing::explore_every_order(plan, static_cast<int>(verify(plan).proof.runs), 100000);
    std::optional<Finding> finding;
    for (std::uint64_t s = 0; s < 40 && !finding; ++s) finding = explore(plan, s).finding;
    if (finding) {
      EXPECT_TRUE(oracle.faults.contains(finding->fault)) << "plan " << seed << ": " << finding->text;
    }
    found += finding.has_value();
    faulty += !oracle.faults.empty();
  }
  fmt::print("of {} faulty random plans {} were found within 40 seeds\n", faulty, found);
  EXPECT_GE(found * 100, faulty * 95);
}

TEST(Explore, AForgottenWaitIsRefusedReplayedAndShrunk) {
  const Plan good = plan_of("gemm_all_reduce", 3, testing::small_topology(3));
  int tried = 0;
  for (std::size_t t = 0; t < good.tasks.size(); ++t) {
    if (good.bodies[good.tasks[t].body].kind != Body::Kind::reduce_ranks) continue;
    for (std::size_t w = 0; w < good.tasks[t].waits.size(); ++w) {
      const Plan broken = without_wait(good, static_cast<TaskId>(t), w);
      const Verdict verdict = verify(broken);
      ASSERT_FALSE(verdict.proven());
      ASSERT_FALSE(verdict.refusal->order.empty()) << verdict.refusal->text;
      const Exploration replayed = replay(broken, verdict.refusal->order);
      ASSERT_TRUE(replayed.finding) << verdict.refusal->text;
      std::uint64_t seed = 0;
      while (seed < 50 && !explore(broken, seed).finding) ++seed;
      ASSERT_LT(seed, 50U);
      if (tried++ > 3) continue;
      const Plan least = shrink(broken, seed);
      EXPECT_LE(least.tasks.size(), 3U) << to_text(least, true);
      EXPECT_FALSE(verify(plan_from_json(to_json(least))).proven());
    }
  }
  EXPECT_GT(tried, 3);
}

}  // namespace
}  // namespace tileway
