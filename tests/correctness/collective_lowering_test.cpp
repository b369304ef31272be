// What a plan looks like whose communications are calls of a collective library.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "support/run.hpp"
#include "tileway/ops.hpp"

namespace tileway {
namespace {

Topology with_library(int ranks) { return Topology::parse(fmt::format("ranks={},lanes=2,copy=1,collective=1", ranks)); }

Plan plan_of(const char* name, int ranks, const char* schedule = "collective", std::vector<std::int64_t> size = {}) {
  const Program program = make_program(find_operator(name), ranks, DType::f32, std::move(size));
  return lower(program, Schedule::named(program, schedule), with_library(ranks)).plan;
}

// By collective lane, in its order.
std::map<std::int32_t, std::vector<std::int32_t>> joints_by_lane(const Plan& plan) {
  std::map<std::int32_t, std::vector<std::int32_t>> joints;
  for (std::size_t l = 0; l < plan.lanes.size(); ++l) {
    if (plan.lanes[l].engine != Engine::collective) continue;
    for (TaskId id : plan.lanes[l].tasks) joints[static_cast<std::int32_t>(l)].push_back(plan.tasks[id].joint);
  }
  return joints;
}

std::set<TaskId> notifiers_of(const Plan& plan, SignalId signal) {
  std::set<TaskId> ids;
  for (std::size_t t = 0; t < plan.tasks.size(); ++t) {
    for (const Notify& notify : plan.tasks[t].notifies) {
      if (notify.signal == signal) ids.insert(static_cast<TaskId>(t));
    }
  }
  return ids;
}

TEST(CollectiveLowering, EveryRankCallsTheLibraryInOneOrder) {
  for (const Operator& op : operators()) {
    if (op.name == "all_to_all_v") continue;
    for (int ranks : {2, 3, 4, 5, 8}) {
      const auto joints = joints_by_lane(plan_of(std::string(op.name).c_str(), ranks));
      ASSERT_EQ(joints.size(), static_cast<std::size_t>(ranks)) << op.name;
      EXPECT_GT(joints.begin()->second.size(), 1U) << op.name;
      for (const auto& [lane, order] : joints) EXPECT_EQ(order, joints.begin()->second) << op.name << " lane " << lane;
    }
  }
}

TEST(CollectiveLowering, EveryTileIsContiguousAndNoRankTouchesAnothersMemory) {
  for (const auto& size : {std::vector<std::int64_t>{513, 129, 65}, {3, 1024, 64}, {64, 32, 1}}) {
    const Plan plan = plan_of("gemm_all_reduce", 3, "collective", size);
    std::int64_t reduced = 0;
    for (const Task& task : plan.tasks) {
      for (const auto* list : {&task.reads, &task.writes}) {
        for (const Access& access : *list) {
          EXPECT_EQ(plan.buffers[access.buffer].rank, task.rank);
          if (task.joint == -1) continue;
          EXPECT_TRUE(contiguous(access.box, plan.buffers[access.buffer].shape)) << to_string(access.box);
        }
      }
      if (task.joint != -1) reduced += task.writes[0].box.volume();
    }
    EXPECT_EQ(reduced, 3 * size[0] * size[1]);
    EXPECT_TRUE(std::none_of(plan.buffers.begin(), plan.buffers.end(), [](const Buffer& b) { return b.symmetric; }));
  }
}

TEST(CollectiveLowering, ACallWaitsForTheTilesThatItReadsAndUnfusedForAll) {
  Program program =
      make_program(find_operator("gemm_all_reduce"), 2, DType::f32, std::vector<std::int64_t>{256, 64, 32});
  Schedule unfused = Schedule::unfused(program);
  unfused.engine(Tensor(&program, 3), Engine::collective);
  for (const bool overlaps : {true, false}) {
    const Plan plan = lower(program, overlaps ? Schedule::collective(program) : unfused, with_library(2)).plan;
    std::size_t tiles = 0;
    for (const Task& task : plan.tasks) tiles += task.rank == 0 && plan.bodies[task.body].kind == Body::Kind::matmul;
    ASSERT_GT(tiles, 4U);
    const auto first = std::find_if(plan.lanes.begin(), plan.lanes.end(),
                                    [](const Lane& lane) { return lane.engine == Engine::collective; });
    const Task& call = plan.tasks[first->tasks[0]];
    ASSERT_EQ(call.waits.size(), 1U);
    // All but the last tile of a lane are known with it.
    std::size_t known = 0;
    for (std::int32_t id : notifiers_of(plan, call.waits[0].signal)) {
      const Task& tile = plan.tasks[id];
      EXPECT_EQ(tile.rank, call.rank);
      known += static_cast<std::size_t>(
          std::count_if(plan.lanes[tile.lane].tasks.begin(), plan.lanes[tile.lane].tasks.begin() + tile.index + 1,
                        [&](TaskId t) { return plan.bodies[plan.tasks[t].body].kind == Body::Kind::matmul; }));
    }
    if (overlaps) {
      EXPECT_LT(known, tiles);
    } else {
      EXPECT_EQ(known, tiles);
    }
  }
}

// What a task waits for, through any tasks, by the bodies of those on its rank.
std::size_t known_to(const Plan& plan, TaskId of, Body::Kind kind) {
  std::set<TaskId> seen;
  std::vector<TaskId> open{of};
  while (!open.empty()) {
    const Task& task = plan.tasks[open.back()];
    open.pop_back();
    std::set<TaskId> before;
    for (const Wait& wait : task.waits) before.merge(notifiers_of(plan, wait.signal));
    if (task.index > 0) before.insert(plan.lanes[task.lane].tasks[task.index - 1]);
    for (TaskId id : before) {
      if (seen.insert(id).second) open.push_back(id);
    }
  }
  return static_cast<std::size_t>(std::count_if(seen.begin(), seen.end(), [&](TaskId id) {
    return plan.bodies[plan.tasks[id].body].kind == kind && plan.tasks[id].rank == plan.tasks[of].rank;
  }));
}

TEST(CollectiveLowering, TheFirstTransferDoesNotDependOnTheLastTile) {
  const std::pair<const char*, Body::Kind> cases[] = {{"gemm_all_reduce", Body::Kind::matmul},
                                                      {"gemm_reduce_scatter", Body::Kind::matmul},
                                                      {"gemm_all_to_all", Body::Kind::matmul},
                                                      {"embedding_all_to_all", Body::Kind::embedding_bag}};
  for (const auto& [name, kind] : cases) {
    for (int ranks : {2, 3, 4}) {
      const Plan plan = plan_of(name, ranks);
      for (const Lane& lane : plan.lanes) {
        if (lane.engine != Engine::collective) continue;
        const auto tiles = static_cast<std::size_t>(
            std::count_if(plan.tasks.begin(), plan.tasks.end(), [&, producer = kind](const Task& task) {
              return task.rank == lane.rank && plan.bodies[task.body].kind == producer;
            }));
        const std::size_t first = known_to(plan, lane.tasks.front(), kind);
        EXPECT_GT(first, 0U) << name;
        EXPECT_LT(first, tiles) << name << " of " << ranks << " ranks";
        EXPECT_LT(first, known_to(plan, lane.tasks.back(), kind)) << name;
      }
    }
  }
}

TEST(CollectiveLowering, AConsumerStartsOnTheTilesThatHaveArrived) {
  for (int ranks : {2, 3, 4}) {
    const Plan plan = plan_of("all_gather_gemm", ranks);
    std::size_t calls = 0;
    for (const Task& task : plan.tasks) calls += task.rank == 0 && task.joint != -1;
    ASSERT_GT(calls, 1U);
    std::size_t least = calls;
    for (std::size_t t = 0; t < plan.tasks.size(); ++t) {
      const Task& task = plan.tasks[t];
      if (task.rank != 0 || plan.bodies[task.body].kind != Body::Kind::matmul) continue;
      least = std::min(least, known_to(plan, static_cast<TaskId>(t), Body::Kind::exchange));
    }
    EXPECT_LT(least, calls);
  }
}

// Calls of all ranks together.
TEST(CollectiveLowering, ElementsAreMovedOnceAndPackedOnlyWhereTheyLieApart) {
  constexpr std::int64_t kRows = 12;
  constexpr std::int64_t kColumns = 30;
  constexpr int kRanks = 3;
  const auto counts = [&](const Placement& from, const Placement& to) {
    Program program("moves", kRanks);
    const Tensor x = program.input("x", DType::f32, {kRows, kColumns}, from);
    const bool adds = from.is_partial();
    program.output("y", adds ? reduce_scatter(x, to.dim) : to.is_shard() ? all_to_all(x, to.dim) : all_gather(x));
    const Plan plan = lower(program, Schedule::collective(program), with_library(kRanks)).plan;
    std::int64_t brought = 0;
    std::int64_t packed = 0;
    for (const Task& task : plan.tasks) {
      for (const Access& write : task.writes) {
        if (task.joint != -1) brought += write.box.volume();
        if (task.joint == -1 && plan.buffers[write.buffer].name.ends_with("packed")) packed += write.box.volume();
      }
    }
    return std::pair(brought, packed);
  };
  const std::int64_t all = kRows * kColumns;
  EXPECT_EQ(counts(Shard(0), Replicate()), std::pair((kRanks - 1) * all, std::int64_t{0}));
  EXPECT_EQ(counts(Shard(1), Shard(0)), std::pair(all * (kRanks - 1) / kRanks, std::int64_t{0}));
  EXPECT_EQ(counts(Shard(0), Shard(1)), std::pair(all * (kRanks - 1) / kRanks, all * (kRanks - 1) / kRanks));
  EXPECT_EQ(counts(Partial(), Shard(0)), std::pair(all, std::int64_t{0}));
  EXPECT_EQ(counts(Partial(), Shard(1)), std::pair(all, kRanks * all));
}

TEST(CollectiveLowering, GroupedTilesAreOneCallAndChosenTilesAreKept) {
  Program program =
      make_program(find_operator("gemm_all_reduce"), 2, DType::f32, std::vector<std::int64_t>{96, 64, 32});
  const auto calls = [&](Shape tile, int group) {
    Schedule schedule = Schedule::collective(program);
    schedule.tile(Tensor(&program, 3), tile).group(Tensor(&program, 3), group);
    return joints_by_lane(lower(program, schedule, with_library(2)).plan).begin()->second.size();
  };
  EXPECT_EQ(calls({8, 0}, 1), 12U);
  EXPECT_EQ(calls({8, 0}, 3), 4U);
  EXPECT_EQ(calls({8, 64}, 100), 1U);
  EXPECT_EQ(calls({1, 16}, 1), 384U);
  EXPECT_EQ(calls({1, 16}, 8), 48U);  // a row, and then two together
}

TEST(CollectiveLowering, OneRankCallsNobody) {
  const Program program = make_program(find_operator("gemm_all_reduce"), 1, DType::f32, {});
  const Plan plan = lower(program, Schedule::collective(program), testing::small_topology(1)).plan;
  EXPECT_TRUE(joints_by_lane(plan).empty());
  testing::expect_exact(program, Schedule::collective(program), testing::small_topology(1), 1);
}

TEST(CollectiveLowering, ComputeLanesMoveWhatTheyAreChosenFor) {
  for (const char* name : {"gemm_all_reduce", "all_gather_gemm", "all_to_all_v"}) {
    Program program = make_program(find_operator(name), 3, DType::f32, {});
    Schedule schedule = Schedule::overlapped(program);
    for (std::size_t i = 0; i < program.ops().size(); ++i) {
      if (is_communication(program.ops()[i].kind))
        schedule.engine(Tensor(&program, static_cast<int>(i)), Engine::compute);
    }
    const Plan plan = lower(program, schedule, testing::small_topology(3)).plan;
    for (const Lane& lane : plan.lanes) EXPECT_EQ(lane.engine, Engine::compute) << name;
    testing::expect_exact(program, schedule, testing::small_topology(3), 1);
  }
}

}  // namespace
}  // namespace tileway
