// Compute lanes that are set aside for what collectives move: they do that and nothing else, and nobody else does it.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "support/quick.hpp"
#include "support/random_program.hpp"
#include "support/run.hpp"
#include "tileway/ops.hpp"

namespace tileway {
namespace {

Topology with_movers(int ranks, int lanes, int movers, int copy = 0) {
  return Topology::parse(fmt::format("ranks={},lanes={},copy={},movers={}", ranks, lanes, copy, movers));
}

// Every communication by compute lanes.
Schedule by_lanes(Program& program, Schedule schedule) {
  for (std::size_t i = 0; i < program.ops().size(); ++i) {
    if (is_communication(program.ops()[i].kind))
      schedule.engine(Tensor(&program, static_cast<int>(i)), Engine::compute);
  }
  return schedule;
}

// Whether a task moves bytes of a collective, by the names of what it belongs to.
bool moves(const Program& program, const Plan& plan, const Task& task) {
  const Body::Kind kind = plan.bodies[task.body].kind;
  const std::string& origin = plan.origins[task.origin];
  if ((kind != Body::Kind::copy && kind != Body::Kind::copy_rows) || origin[0] != '%') return false;
  return is_communication(program.ops()[std::stoul(origin.substr(1))].kind);
}

// Of each rank, how many lanes move and how many do other work; none does both.
void expect_apart(const Program& program, const Plan& plan) {
  std::map<std::pair<std::int32_t, bool>, int> lanes;
  for (const Lane& lane : plan.lanes) {
    if (lane.engine != Engine::compute) continue;
    const bool mover = moves(program, plan, plan.tasks[lane.tasks[0]]);
    ++lanes[{lane.rank, mover}];
    for (TaskId id : lane.tasks) EXPECT_EQ(moves(program, plan, plan.tasks[id]), mover) << program.name();
  }
  const Topology& topology = plan.topology;
  for (const auto& [key, count] : lanes)
    EXPECT_LE(count, key.second ? topology.movers : topology.lanes - topology.movers) << program.name();
}

TEST(Movers, HoldCommunicationOnlyAndOtherLanesNone) {
  for (const Operator& op : operators()) {
    for (int ranks : testing::quick() ? std::vector{1, 2, 3} : std::vector{1, 2, 3, 5, 8}) {
      Program program = make_program(op, ranks, DType::bf16, {});
      for (const Topology& topology : {with_movers(ranks, 3, 1), with_movers(ranks, 20, 4), with_movers(ranks, 132, 16),
                                       with_movers(ranks, 20, 4, 2)}) {
        expect_apart(program, lower(program, Schedule::overlapped(program), topology).plan);
        expect_apart(program, lower(program, by_lanes(program, Schedule::unfused(program)), topology).plan);
      }
    }
  }
}

TEST(Movers, ATileIsCutIntoNoMorePiecesThanThereAreMovers) {
  Program program =
      make_program(find_operator("gemm_all_reduce"), 2, DType::bf16, std::vector<std::int64_t>{4096, 8192, 64});
  for (const Topology& topology : {with_movers(2, 132, 8), with_movers(2, 132, 8, 2)}) {
    const Plan plan = lower(program, by_lanes(program, Schedule::overlapped(program)), topology).plan;
    std::int64_t least = 1 << 30;
    std::map<std::int32_t, std::int64_t> lanes;
    for (const Task& task : plan.tasks) {
      if (plan.bytes_sent(task) == 0) continue;
      least = std::min(least, plan.bytes_sent(task));
      ++lanes[task.lane];
    }
    EXPECT_GE(least, 256 << 10) << topology.to_text();
    EXPECT_EQ(lanes.size(), 2U * 8) << topology.to_text();
  }
}

TEST(Movers, EveryOperatorIsProvenAndGivesTheInterpretersValues) {
  for (const Operator& op : operators()) {
    for (int ranks : {1, 2, 3, 5, 8}) {
      for (std::int64_t extent : {1, 23}) {
        Program program = make_program(op, ranks, DType::bf16, std::vector<std::int64_t>(op.extents.size(), extent));
        const Schedule schedule = by_lanes(program, Schedule::overlapped(program));
        testing::expect_exact(program, schedule, with_movers(ranks, 3, 2, 1), 1);
        testing::expect_exact(program, schedule, with_movers(ranks, 16, 3), 1);
      }
    }
  }
}

// Large enough that tiles are cut into pieces.
TEST(Movers, PiecesOfTilesAreTheWholeOfThem) {
  for (const char* name : {"gemm_all_reduce", "gemm_reduce_scatter", "all_gather_gemm", "gemm_all_to_all"}) {
    for (int ranks : {2, 3}) {
      Program program = make_program(find_operator(name), ranks, DType::bf16, std::vector<std::int64_t>{1003, 513, 9});
      const Schedule schedule = by_lanes(program, Schedule::overlapped(program));
      testing::expect_exact(program, schedule, with_movers(ranks, 16, 5), 1);
      testing::expect_exact(program, schedule, with_movers(ranks, 16, 0), 1);
    }
  }
}

TEST(Movers, RandomProgramsAreProvenAndGiveTheInterpretersValues) {
  const std::uint64_t last = testing::quick() ? 60 : 300;
  for (std::uint64_t seed = 1; seed <= last && !HasFailure(); ++seed) {
    testing::RandomProgram generator(seed);
    Program program = generator.program();
    const Schedule schedule = by_lanes(program, generator.schedule(program));
    const int lanes = 2 + static_cast<int>(seed % 3);
    const Topology topology = with_movers(program.world(), lanes, 1 + static_cast<int>(seed % (lanes - 1)));
    const Plan plan = lower(program, schedule, topology).plan;
    expect_apart(program, plan);
    testing::expect_exact(program, schedule, topology, seed);
    if (HasFailure()) fmt::print("seed {}\n{}", seed, program.to_text());
  }
}

}  // namespace
}  // namespace tileway
