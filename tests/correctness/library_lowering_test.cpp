// What a plan looks like whose products are calls of a library, and that it is proven and right. On the host a library
// lane is a thread.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "support/quick.hpp"
#include "support/random_program.hpp"
#include "support/run.hpp"
#include "tileway/ops.hpp"

namespace tileway {
namespace {

Topology with_library(int ranks, int lanes = 2, int copy = 1, int library = 1) {
  return Topology::parse(fmt::format("ranks={},lanes={},copy={},library={}", ranks, lanes, copy, library));
}

bool multiplies(const Plan& plan, const Task& task) { return plan.bodies[task.body].kind == Body::Kind::matmul; }

TEST(LibraryLowering, LibraryLanesHoldAllProductsAndNothingElse) {
  for (const Operator& op : operators()) {
    for (int ranks : {1, 2, 3, 5, 8}) {
      const Program program = make_program(op, ranks, DType::bf16, {});
      for (const Topology& topology : {with_library(ranks), with_library(ranks, 16, 2), with_library(ranks, 2, 0, 2)}) {
        const Plan plan = lower(program, Schedule::library(program), topology).plan;
        for (const Task& task : plan.tasks)
          EXPECT_EQ(plan.lanes[task.lane].engine == Engine::library, multiplies(plan, task)) << op.name;
      }
    }
  }
}

TEST(LibraryLowering, ATileIsWholeRowsForOneDestination) {
  constexpr int kRanks = 4;
  const Program program = make_program(find_operator("gemm_reduce_scatter"), kRanks, DType::bf16,
                                       std::vector<std::int64_t>{4096, 8192, 64});
  const Plan plan = lower(program, Schedule::library(program), with_library(kRanks, 16, 2)).plan;
  std::set<int> destinations;
  for (const Task& task : plan.tasks) {
    if (!multiplies(plan, task)) continue;
    const Box& box = task.writes[0].box;
    EXPECT_EQ(box.extent[1], 8192);
    EXPECT_EQ(box.extent[0], 512);  // four million elements, as a copy engine likes them
    EXPECT_EQ(box.start[0] / 1024, (box.start[0] + box.extent[0] - 1) / 1024);
    destinations.insert(static_cast<int>(box.start[0] / 1024));
  }
  EXPECT_EQ(destinations.size(), 4U);
}

TEST(LibraryLowering, AFewRowsStillHaveATileForEachDestinationAndPeersComeFirst) {
  constexpr int kRanks = 3;
  const Program program =
      make_program(find_operator("gemm_reduce_scatter"), kRanks, DType::bf16, std::vector<std::int64_t>{9, 8192, 64});
  const Plan plan = lower(program, Schedule::library(program), with_library(kRanks, 16, 2)).plan;
  for (const Lane& lane : plan.lanes) {
    if (lane.engine != Engine::library) continue;
    std::vector<std::int64_t> owners;
    for (TaskId id : lane.tasks) owners.push_back(plan.tasks[id].writes[0].box.start[0] / 3);
    const std::int64_t rank = lane.rank;
    EXPECT_EQ(owners, (std::vector<std::int64_t>{(rank + 1) % 3, (rank + 2) % 3, rank}));
  }
}

TEST(LibraryLowering, ACallIsExpectedToTakeWhatTheMultiprocessorsThatLanesLeaveTake) {
  const Program program =
      make_program(find_operator("gemm_reduce_scatter"), 2, DType::bf16, std::vector<std::int64_t>{4096, 8192, 8192});
  const Topology topology = with_library(2, 16, 2);
  const Lowered lowered = lower(program, Schedule::library(program), topology);
  for (std::size_t t = 0; t < lowered.plan.tasks.size(); ++t) {
    const Task& task = lowered.plan.tasks[t];
    if (!multiplies(lowered.plan, task)) continue;
    const double flops = 2.0 * static_cast<double>(task.writes[0].box.volume()) * 4096;
    const double us = flops / (topology.lane_gflops * 1e3 * (Topology::gpus(1).lanes - topology.lanes));
    EXPECT_NEAR(lowered.predicted[t].end_us - lowered.predicted[t].begin_us, us, 2);
  }
}

TEST(LibraryLowering, AChosenTileIsKept) {
  Program program =
      make_program(find_operator("gemm_all_reduce"), 2, DType::f32, std::vector<std::int64_t>{96, 64, 32});
  Schedule schedule = Schedule::library(program);
  schedule.tile(Tensor(&program, 2), {32, 32});
  const Plan plan = lower(program, schedule, with_library(2, 16, 2)).plan;
  EXPECT_EQ(std::count_if(plan.tasks.begin(), plan.tasks.end(), [&](const Task& t) { return multiplies(plan, t); }),
            2 * 3 * 2);
}

TEST(LibraryLowering, AProductCanBeGivenBackToComputeLanes) {
  Program program = make_program(find_operator("gemm_all_reduce"), 2, DType::f32, {});
  Schedule schedule = Schedule::library(program);
  schedule.engine(Tensor(&program, 2), Engine::compute);
  const Plan plan = lower(program, schedule, testing::small_topology(2)).plan;
  EXPECT_TRUE(std::none_of(plan.lanes.begin(), plan.lanes.end(),
                           [](const Lane& lane) { return lane.engine == Engine::library; }));
}

TEST(LibraryLowering, EveryOperatorIsProvenAndGivesTheInterpretersValues) {
  for (const Operator& op : operators()) {
    for (int ranks : {1, 2, 3, 5, 8}) {
      for (std::int64_t extent : {1, 23}) {
        const Program program =
            make_program(op, ranks, DType::bf16, std::vector<std::int64_t>(op.extents.size(), extent));
        for (const Topology& topology : {with_library(ranks), with_library(ranks, 2, 0, 2), with_library(ranks, 16, 2)})
          testing::expect_exact(program, Schedule::library(program), topology, 1);
      }
    }
  }
}

TEST(LibraryLowering, RandomProgramsAreProvenAndGiveTheInterpretersValues) {
  int multiplied = 0;
  const std::uint64_t last = testing::quick() ? 60 : 300;
  for (std::uint64_t seed = 1; seed <= last && !HasFailure(); ++seed) {
    testing::RandomProgram generator(seed);
    Program program = generator.program();
    Schedule schedule = generator.schedule(program);
    for (std::size_t i = 0; i < program.ops().size(); ++i) {
      if (program.ops()[i].kind != OpKind::matmul || schedule.absorbed(static_cast<int>(i))) continue;
      schedule.engine(Tensor(&program, static_cast<int>(i)), Engine::library);
      ++multiplied;
    }
    Topology topology = generator.topology(program.world());
    topology.library = 1 + static_cast<int>(seed % 2);
    testing::expect_exact(program, schedule, topology, seed);
    if (HasFailure()) fmt::print("seed {}\n{}", seed, program.to_text());
  }
  EXPECT_GT(multiplied, static_cast<int>(last) / 3);
}

}  // namespace
}  // namespace tileway
