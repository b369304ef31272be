// What overlapping is for: bytes leave while the producer still works.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "support/run.hpp"
#include "tileway/ops.hpp"

namespace tileway {
namespace {

// Everything that must have ended before a task can start, if lanes are strictly serial.
std::set<TaskId> ancestors(const Plan& plan, TaskId id) {
  std::map<SignalId, std::vector<TaskId>> notifiers;
  for (std::size_t t = 0; t < plan.tasks.size(); ++t) {
    for (const Notify& notify : plan.tasks[t].notifies) notifiers[notify.signal].push_back(static_cast<TaskId>(t));
  }
  std::set<TaskId> seen;
  std::vector<TaskId> open{id};
  while (!open.empty()) {
    const Task& task = plan.tasks[open.back()];
    open.pop_back();
    std::vector<TaskId> before;
    if (task.index > 0) before.push_back(plan.lanes[task.lane].tasks[task.index - 1]);
    for (const Wait& wait : task.waits)
      before.insert(before.end(), notifiers[wait.signal].begin(), notifiers[wait.signal].end());
    for (TaskId other : before) {
      if (seen.insert(other).second) open.push_back(other);
    }
  }
  return seen;
}

std::vector<TaskId> tasks_of(const Plan& plan, int rank, const std::string& origin, bool sending) {
  std::vector<TaskId> tasks;
  for (const Lane& lane : plan.lanes) {
    for (TaskId id : lane.tasks) {
      const Task& task = plan.tasks[id];
      if (task.rank == rank && plan.origins[task.origin] == origin && (!sending || plan.bytes_sent(task) > 0))
        tasks.push_back(id);
    }
  }
  return tasks;
}

std::string origin_of(const Program& program, int op) {
  return fmt::format("%{} {}", op, name_of(program.ops()[op].kind));
}

// For every communication that computation feeds: (producer, communication).
std::vector<std::pair<int, int>> fed_communications(const Program& program) {
  std::vector<std::pair<int, int>> pairs;
  for (std::size_t i = 0; i < program.ops().size(); ++i) {
    const Op& op = program.ops()[i];
    if (!is_communication(op.kind) || op.kind == OpKind::all_to_all_v) continue;
    const OpKind producer = program.ops()[op.operands[0]].kind;
    if (producer != OpKind::input) pairs.emplace_back(op.operands[0], static_cast<int>(i));
  }
  return pairs;
}

TEST(Overlap, TheFirstTransferDoesNotDependOnTheLastTile) {
  int checked = 0;
  for (const Operator& op : operators()) {
    for (int ranks : {2, 3, 5, 8}) {
      const auto topology_of = [&](const char* rest) {
        return Topology::parse(fmt::format("ranks={},{}", ranks, rest));
      };
      for (const Topology& topology :
           {testing::small_topology(ranks, 1, 1), testing::small_topology(ranks, 3, 2), topology_of("lanes=132,copy=2"),
            topology_of("lanes=132,copy=0,movers=8"), topology_of("lanes=16,copy=2,library=1"),
            topology_of("lanes=2,copy=1,library=1")}) {
        const Program program = make_program(op, ranks, DType::bf16, {});
        const Schedule schedule = topology.library > 0 ? Schedule::library(program) : Schedule::overlapped(program);
        const Plan plan = lower(program, schedule, topology).plan;
        for (const auto& [producer, communication] : fed_communications(program)) {
          for (int rank = 0; rank < ranks; ++rank) {
            const std::vector<TaskId> tiles = tasks_of(plan, rank, origin_of(program, producer), false);
            const std::vector<TaskId> puts = tasks_of(plan, rank, origin_of(program, communication), true);
            if (tiles.size() < 2 || puts.empty()) continue;
            bool early = false;
            for (TaskId put : puts) {
              const std::set<TaskId> before = ancestors(plan, put);
              early =
                  early || std::any_of(tiles.begin(), tiles.end(), [&](TaskId tile) { return !before.contains(tile); });
              if (early) break;
            }
            EXPECT_TRUE(early) << op.name << " on rank " << rank << " of " << topology.to_text();
            ++checked;
          }
        }
      }
    }
  }
  EXPECT_GT(checked, 200);
}

TEST(Overlap, FusedTilesTravelByTheTasksThatMakeThemAndNothingElseDoes) {
  for (const char* name : {"gemm_all_reduce", "gemm_reduce_scatter", "gemm_all_to_all"}) {
    Program program = make_program(find_operator(name), 3, DType::bf16, std::vector<std::int64_t>{1024, 1536, 96});
    const Topology topology = Topology::parse("ranks=3,lanes=132,copy=2");
    const auto senders = [&](const Schedule& schedule) {  // bytes by body
      const Plan plan = lower(program, schedule, topology).plan;
      ProvenPlan::prove(plan);
      std::map<Body::Kind, std::int64_t> bytes;
      for (const Task& task : plan.tasks) bytes[plan.bodies[task.body].kind] += plan.bytes_sent(task);
      std::erase_if(bytes, [](const auto& entry) { return entry.second == 0; });
      return bytes;
    };
    const std::map<Body::Kind, std::int64_t> copied = senders(Schedule::overlapped(program));
    const std::map<Body::Kind, std::int64_t> fused = senders(Schedule::fused(program));
    ASSERT_EQ(copied.size(), 1U) << name;
    EXPECT_FALSE(fused.contains(Body::Kind::copy)) << name;
    EXPECT_TRUE(fused.contains(Body::Kind::matmul)) << name;
    EXPECT_EQ(fused.contains(Body::Kind::reduce_ranks), name == std::string_view("gemm_all_reduce"));
    std::int64_t sum = 0;
    for (const auto& [kind, bytes] : fused) sum += bytes;
    EXPECT_EQ(sum, copied.begin()->second) << name;
    // Only the last tile for each destination: most still travel by copies.
    const Tensor product(&program, 2);
    Schedule schedule = Schedule::overlapped(program);
    schedule.tile(Tensor(&program, 3), {128, 0}).fuse(product, Tensor(&program, 3), 1);
    const std::map<Body::Kind, std::int64_t> mixed = senders(schedule);
    EXPECT_GT(mixed.at(Body::Kind::copy), mixed.at(Body::Kind::matmul)) << name;
    EXPECT_GT(mixed.at(Body::Kind::matmul), 0) << name;
  }
}

TEST(Overlap, UnfusedTransfersWaitForTheWholeProducer) {
  const Program program = make_program(find_operator("gemm_all_reduce"), 3, DType::f32, {});
  const Plan plan = lower(program, Schedule::unfused(program), testing::small_topology(3)).plan;
  for (const auto& [producer, communication] : fed_communications(program)) {
    const std::vector<TaskId> tiles = tasks_of(plan, 0, origin_of(program, producer), false);
    const std::vector<TaskId> puts = tasks_of(plan, 0, origin_of(program, communication), true);
    ASSERT_FALSE(puts.empty());
    const std::set<TaskId> before = ancestors(plan, puts[0]);
    EXPECT_TRUE(std::all_of(tiles.begin(), tiles.end(), [&](TaskId tile) { return before.contains(tile); }));
  }
}

TEST(Overlap, PeersTilesComeFirstFromADifferentPeerOnEveryRankAndOwnTilesLast) {
  constexpr int kRanks = 4;
  const Program program = make_program(find_operator("gemm_reduce_scatter"), kRanks, DType::f32, {});
  const Plan plan = lower(program, Schedule::overlapped(program), testing::small_topology(kRanks, 1, 1)).plan;
  const std::int64_t rows = program.ops()[2].type.shape[0] / kRanks;
  for (int rank = 0; rank < kRanks; ++rank) {
    std::vector<int> owners;
    for (TaskId id : tasks_of(plan, rank, "%2 matmul", false)) {
      const Box& box = plan.tasks[id].writes[0].box;
      const int owner = static_cast<int>(box.start[0] / rows);
      EXPECT_EQ((box.start[0] + box.extent[0] - 1) / rows, owner) << "a tile straddles two owners";
      if (owners.empty() || owners.back() != owner) owners.push_back(owner);
    }
    std::vector<int> expected;
    for (int distance = 1; distance <= kRanks; ++distance) expected.push_back((rank + distance) % kRanks);
    EXPECT_EQ(owners, expected) << "rank " << rank;
  }
}

TEST(Overlap, LocalTilesOfAGatheredOperandComeFirst) {
  constexpr int kRanks = 3;
  const Program program = make_program(find_operator("all_gather_gemm"), kRanks, DType::f32, {});
  const Plan plan = lower(program, Schedule::overlapped(program), testing::small_topology(kRanks, 1, 1)).plan;
  const TensorType& x = program.ops()[0].type;
  for (int rank = 0; rank < kRanks; ++rank) {
    const std::vector<TaskId> tiles = tasks_of(plan, rank, "%3 matmul", false);
    ASSERT_FALSE(tiles.empty());
    const std::int64_t start = plan.tasks[tiles[0]].writes[0].box.start[0];
    EXPECT_GE(start, x.shard_start(rank));
    EXPECT_LT(start, x.shard_start(rank) + x.placement.sizes[rank]);
  }
}

// Of the bytes that all ranks send, those that have left before their rank's last producing tile is done.
double share_sent_early(const Plan& plan, const std::vector<std::vector<TraceEvent>>& traces,
                        const std::string& producer) {
  std::int64_t early = 0;
  std::int64_t all = 0;
  for (const auto& trace : traces) {
    std::int64_t last = 0;
    for (const TraceEvent& event : trace) {
      if (plan.origins[plan.tasks[event.task].origin] == producer) last = std::max(last, event.end);
    }
    for (const TraceEvent& event : trace) {
      const std::int64_t bytes = plan.bytes_sent(plan.tasks[event.task]);
      all += bytes;
      if (event.end <= last) early += bytes;
    }
  }
  return static_cast<double>(early) / static_cast<double>(all);
}

TEST(Overlap, OnASlowLinkFourFifthsOfTheBytesLeaveBeforeTheLastTileIsDone) {
  for (const char* name : {"gemm_reduce_scatter", "gemm_all_reduce", "gemm_all_to_all"}) {
    const Operator& op = find_operator(name);
    Program program = make_program(op, 2, DType::f32, std::vector<std::int64_t>{768, 512, 2048});
    Schedule schedule = Schedule::overlapped(program);
    schedule.tile(Tensor(&program, 2), {16, 0}).tile(Tensor(&program, 3), {16, 0});
    const Plan plan = lower(program, schedule, testing::small_topology(2, 1, 1)).plan;
    const Bindings inputs = random_inputs(program, 1, Fill::integers);
    double sent = 0;
    for (const Task& task : plan.tasks) sent += static_cast<double>(plan.bytes_sent(task)) / 2;
    double slow_gb_s = 0;
    double best = 0;
    // Other work on the machine holds threads up, now one rank, now the other: the least disturbed attempt tells.
    for (int attempt = 0; attempt < 100 && best < 0.8; ++attempt) {
      // So slow that the bytes of a rank take about half as long as its tiles (measured with the link at full speed).
      const auto fast = testing::run_threads(program, plan, {inputs, inputs}, {.trace = true});
      double computing_us = 0;
      for (const auto& trace : fast.traces) computing_us = std::max(computing_us, summarise(plan, trace).computing_us);
      slow_gb_s = sent / (computing_us / 2) * 1e-3;
      const auto slow = testing::run_threads(program, plan, {inputs, inputs}, {.link_gb_s = slow_gb_s, .trace = true});
      best = std::max(best, share_sent_early(plan, slow.traces, "%2 matmul"));
    }
    fmt::print("{}: {:.0f}% of the bytes left before the last tile, link at {:.3f} GB/s\n", name, 100 * best,
               slow_gb_s);
    EXPECT_GE(best, 0.8) << name;
  }
}

TEST(Overlap, SumsThatNoTransferWaitsForComeBehindTheProducts) {
  for (const char* name : {"gemm_reduce_scatter", "gemm_all_reduce"}) {
    const Program program =
        make_program(find_operator(name), 2, DType::bf16, std::vector<std::int64_t>{4096, 8192, 4096});
    const Plan plan = lower(program, Schedule::overlapped(program), Topology::parse("ranks=2,lanes=132,copy=2")).plan;
    int products_behind_sums = 0;
    for (const Lane& lane : plan.lanes) {
      bool sums = false;
      for (TaskId id : lane.tasks) {
        const Body::Kind kind = plan.bodies[plan.tasks[id].body].kind;
        sums = sums || kind == Body::Kind::reduce_ranks;
        products_behind_sums += sums && kind == Body::Kind::matmul ? 1 : 0;
      }
    }
    // The sums of an all_reduce are sent on, the earlier the better.
    EXPECT_EQ(products_behind_sums > 0, std::string(name) == "gemm_all_reduce") << name;
  }
}

}  // namespace
}  // namespace tileway
