// What a plan looks like whose all_reduces are calls of a collective library.
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

std::set<std::int32_t> notifiers_of(const Plan& plan, SignalId signal) {
  std::set<std::int32_t> ids;
  for (std::size_t t = 0; t < plan.tasks.size(); ++t) {
    for (const Notify& notify : plan.tasks[t].notifies) {
      if (notify.signal == signal) ids.insert(static_cast<std::int32_t>(t));
    }
  }
  return ids;
}

TEST(CollectiveLowering, EveryRankCallsTheLibraryInOneOrder) {
  for (const char* name : {"gemm_all_reduce", "all_reduce_rms_norm"}) {
    for (int ranks : {2, 3, 4, 5, 8}) {
      const auto joints = joints_by_lane(plan_of(name, ranks));
      ASSERT_EQ(joints.size(), static_cast<std::size_t>(ranks)) << name;
      EXPECT_GT(joints.begin()->second.size(), 1U) << name;
      for (const auto& [lane, order] : joints) EXPECT_EQ(order, joints.begin()->second) << name << " lane " << lane;
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
