// What is chosen for the GPUs that there are.
#include <gtest/gtest.h>

#include "tileway/ops.hpp"
#include "tileway/place.hpp"
#include "tileway/schedule.hpp"
#include "tileway/verify.hpp"

namespace tileway {
namespace {

TEST(Places, WithLinkedGpusTakeAllOfThem) {
  const Place place{.cuda = true, .gpus = 2, .multiprocessors = 132};
  EXPECT_EQ(topology_of(place, 2).lanes, 132);
  EXPECT_EQ(topology_of(place, 2).collective, 0);
  EXPECT_EQ(schedule_of(place), "overlapped");
  EXPECT_EQ(schedule_of({}), "overlapped");
}

TEST(Places, WithGpusThatAreNotLinkedNeedNoPeersMemory) {
  const Place place{.cuda = true, .gpus = 4, .multiprocessors = 128, .linked = false};
  const Topology topology = topology_of(place, 4);
  EXPECT_EQ(topology.lanes, 120);
  EXPECT_EQ(topology.collective, 1);
  for (const Operator& op : operators()) {
    const Program program = make_program(op, 4, DType::bf16, {});
    const Plan plan = lower(program, Schedule::named(program, schedule_of(place)), topology).plan;
    EXPECT_TRUE(verify(plan).proven()) << op.name;
    EXPECT_EQ(plan.reaches_peers(), op.name == "all_to_all_v") << op.name;
  }
}

}  // namespace
}  // namespace tileway
