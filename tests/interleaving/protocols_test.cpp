// Protocols of the field, each as a plan that is proven, and each with the fault for which it is known, which is
// refused for just that.
#include <gtest/gtest.h>

#include "interleaving/filed_plans.hpp"
#include "plan/edit.hpp"
#include "support/draft.hpp"
#include "support/mutate.hpp"
#include "support/run.hpp"
#include "tileway/error.hpp"
#include "tileway/ops.hpp"
#include "tileway/verify.hpp"

namespace tileway {
namespace {

using testing::Draft;
using testing::expect_malformed;
using testing::expect_proven;
using testing::expect_refused;
using testing::filed;

// Both ranks send their x to the other as packets and add the two.
Plan one_shot_by_packets(int slots) {
  Draft d("one-shot all_reduce by packets", 2);
  std::vector<BufferId> x, packets;
  std::vector<TaskId> send(2), sum(2);
  for (int r : {0, 1}) x.push_back(d.input(r));
  for (int r : {0, 1}) packets.push_back(d.buffer(r, "packets", Buffer::Role::scratch, slots));
  for (int r : {0, 1}) {
    const std::int32_t lane = d.lane(r);
    send[r] = d.task(lane, {x[r]}, {packets[1 - r]});
    sum[r] = d.task(lane, {x[r], packets[r]}, {d.output(r)});
  }
  for (int r : {0, 1}) {
    const SignalId id = d.signal(r, {send[1 - r]}, {sum[r]}, SignalInfo::Kind::packet);
    d.plan.signals[id].buffer = packets[r];
  }
  return d.plan;
}

TEST(Protocols, OneShotAllReduceByPacketsNeedsTwoSlots) {
  expect_proven(one_shot_by_packets(2));
  expect_refused(one_shot_by_packets(1), Fault::race,
                 "a second slot: the peer's next packets come before these are read");
}

TEST(Protocols, AllToAllVReadsTheSplitsBeforeItUsesThem) {
  const Program program = make_program(find_operator("all_to_all_v"), 2, DType::f32, {});
  const Plan good = lower(program, Schedule::overlapped(program), testing::small_topology(2, 1, 1)).plan;
  expect_proven(good);
  Plan broken;
  for (std::size_t t = 0; t < good.tasks.size(); ++t) {
    if (good.bodies[good.tasks[t].body].kind != Body::Kind::copy_rows || good.tasks[t].waits.empty()) continue;
    Plan bad = good;
    bad.tasks[t].waits.clear();
    EXPECT_FALSE(verify(bad).proven()) << "task " << t;
    broken = bad;
  }
  expect_refused(broken, Fault::race, "the wait for the splits");
  Plan fewer = good;  // a slice that nobody writes
  for (Task& task : fewer.tasks) {
    if (fewer.bodies[task.body].kind == Body::Kind::zero_rows && task.rank == 1) {
      task.writes[0].slice = 0;
      break;
    }
  }
  EXPECT_FALSE(verify(fewer).proven());
}

// A tile is computed, a copy lane behind a gate takes it to the peer, the peer reads it and says so.
struct Gated {
  Draft d{"a copy lane behind a gate", 2};
  TaskId compute, copy, read, end;
  Gated() {
    const BufferId x = d.input(0);
    const BufferId tile = d.buffer(0, "tile");
    const BufferId arrived = d.buffer(1, "arrived");
    const std::int32_t sm = d.lane(0);
    compute = d.task(sm, {x}, {tile});
    copy = d.task(d.lane(0, Engine::copy), {tile}, {arrived});
    read = d.task(d.lane(1), {arrived}, {d.output(1)});
    end = d.task(sm, {}, {});
    d.signal(0, {compute}, {copy}, SignalInfo::Kind::gate);
    d.signal(1, {copy}, {read});
    d.signal(0, {read}, {end});
  }
};

TEST(Protocols, ACopyLaneWaitsAtItsGateAndTheGateIsOpenedAtSystemScope) {
  expect_proven(Gated().d.plan);
  Gated narrow;
  narrow.d.plan.tasks[narrow.compute].notifies[0].scope = Notify::Scope::device;
  expect_refused(narrow.d.plan, Fault::scope, "system scope");
  Gated open;
  open.d.plan.tasks[open.copy].waits.clear();
  open.d.plan.signals[0].kind = SignalInfo::Kind::add;
  expect_refused(open.d.plan, Fault::race, "the gate");
  Gated remote;
  remote.d.plan.tasks[remote.compute].notifies.clear();
  remote.d.plan.tasks[remote.read].notifies.push_back({0});
  expect_malformed(remote.d.plan, "a gate is local");
}

// Two collectives on both ranks, fed by and feeding compute lanes.
Plan joints(bool same_order) {
  Draft d("two collectives", 2);
  for (int r : {0, 1}) {
    const std::int32_t sm = d.lane(r);
    const std::int32_t calls = d.lane(r, Engine::collective);
    const BufferId x = d.input(r);
    const BufferId a = d.buffer(r, "a"), b = d.buffer(r, "b"), c = d.buffer(r, "c"), e = d.buffer(r, "e");
    const TaskId first = d.task(sm, {x}, {a});
    const TaskId second = d.task(sm, {x}, {b});
    const bool swapped = r == 1 && !same_order;
    const TaskId j0 = d.joint(calls, swapped ? 1 : 0, swapped ? b : a, swapped ? e : c);
    const TaskId j1 = d.joint(calls, swapped ? 0 : 1, swapped ? a : b, swapped ? c : e);
    const TaskId sum = d.task(sm, {c, e}, {d.output(r)});
    d.signal(r, {first}, {swapped ? j1 : j0});
    d.signal(r, {second}, {swapped ? j0 : j1});
    d.signal(r, {j1}, {sum});
  }
  return d.plan;
}

TEST(Protocols, RanksIssueCollectivesInOneOrder) {
  expect_proven(joints(true));
  expect_refused(joints(false), Fault::deadlock, "one order on all ranks");
}

TEST(Protocols, EveryMutantOfTwoCollectivesIsRefused) {
  const Plan plan = joints(true);
  int swapped = 0;
  for (const testing::Mutant& mutant : testing::mutants(plan)) {
    const Plan broken = testing::apply(mutant, plan);
    bool refused = false;
    try {
      refused = !verify(broken).proven();
    } catch (const Error&) {
      refused = true;
    }
    EXPECT_TRUE(refused) << mutant.text;
    swapped += mutant.edit == testing::Edit::swap_joints;
  }
  EXPECT_GT(swapped, 1);
}

// Both ranks give the other half of what they have and add what they are given.
struct LibraryExchange {
  Draft d{"an exchange by a library", 2};
  TaskId call[2] = {};
  LibraryExchange() {
    for (int r : {0, 1}) {
      const std::int32_t sm = d.lane(r);
      const BufferId x = d.input(r), own = d.buffer(r, "own"), theirs = d.buffer(r, "theirs");
      const TaskId first = d.task(sm, {x}, {own});
      std::vector<BufferId> given{own, own}, taken{theirs, theirs};
      given[r] = taken[r] = -1;
      call[r] = d.exchange(d.lane(r, Engine::collective), 0, given, taken);
      const TaskId sum = d.task(sm, {own, theirs}, {d.output(r)});
      d.signal(r, {first}, {call[r]});
      d.signal(r, {call[r]}, {sum});
    }
  }
};

TEST(Protocols, WhatALibraryExchangesIsThereBeforeAndAwaitedAfterwards) {
  const LibraryExchange whole;
  expect_proven(whole.d.plan);
  for (const testing::Mutant& mutant : testing::mutants(whole.d.plan)) {
    bool refused = false;
    try {
      refused = !verify(testing::apply(mutant, whole.d.plan)).proven();
    } catch (const Error&) {
      refused = true;
    }
    EXPECT_TRUE(refused) << mutant.text;
  }
  LibraryExchange early;
  early.d.plan.tasks[early.call[0]].waits.clear();
  expect_refused(early.d.plan, Fault::race, "the wait for what it sends");
  LibraryExchange unequal;
  unequal.d.plan.tasks[unequal.call[0]].reads[1].box.extent[0] = 3;
  expect_malformed(unequal.d.plan, "something else than that gives; expected 4 elements of i32, got 3 elements of i32");
  LibraryExchange alone;
  alone.d.plan.tasks[alone.call[0]].reads[0].box.extent[0] = 4;
  expect_malformed(alone.d.plan, "exchanges something with itself");
  LibraryExchange fewer;
  fewer.d.plan.tasks[fewer.call[1]].reads.pop_back();
  fewer.d.plan.tasks[fewer.call[1]].writes.pop_back();
  expect_malformed(fewer.d.plan, "does not read something for each member; expected 2, got 1");
  LibraryExchange remote;
  remote.d.plan.tasks[remote.call[1]].reads[0].buffer = 0;
  expect_malformed(remote.d.plan, "a library is handed the rank's own memory");
}

// Rank 0 gives something to rank 1 and then writes over what rank 1 had read before it came to be given.
TEST(Protocols, WhoGivesMayEndBeforeWhoTakesHasBegun) {
  const auto plan = [](bool told) {
    Draft d("a gift by a library", 2);
    const BufferId x = d.input(0), z = d.input(1), seen = d.buffer(1, "seen"), taken = d.buffer(1, "taken");
    const std::int32_t giver = d.lane(0), reader = d.lane(1);
    const TaskId begin = d.task(reader, {z}, {seen});
    const TaskId read = d.task(reader, {seen}, {d.output(1)});
    const TaskId give = d.exchange(d.lane(0, Engine::collective), 0, {-1, x}, {-1, -1});
    const TaskId take = d.exchange(d.lane(1, Engine::collective), 0, {-1, -1}, {taken, -1});
    const TaskId over = d.task(giver, {x}, {seen});
    d.signal(1, {begin}, {read});
    d.signal(1, {read}, {take});
    d.signal(0, {give}, {over});
    if (told) d.signal(0, {read}, {over});
    d.signal(1, {over}, {d.task(d.lane(1), {}, {})});
    return d.plan;
  };
  expect_proven(plan(true));
  expect_refused(plan(false), Fault::race, "a word from who takes");
}

// Three lanes add to what one has cleared; the reader waits for all.
Plan accumulator(std::uint32_t awaited) {
  Draft d("an accumulator", 1);
  const BufferId x = d.input(0), sum = d.buffer(0, "sum");
  const std::int32_t lane = d.lane(0);
  const TaskId clear = d.task(lane, {x}, {sum});
  std::vector<TaskId> adding;
  for (int i = 0; i < 2; ++i) {
    adding.push_back(d.task(d.lane(0), {x}, {sum}));
    d.plan.tasks.back().writes[0].mode = Access::Mode::accumulate;
  }
  const TaskId read = d.task(lane, {sum}, {d.output(0)});
  d.signal(0, {clear}, adding);
  d.signal(0, adding, {read});
  d.plan.tasks[read].waits[0].value = awaited;
  return d.plan;
}

TEST(Protocols, AnAccumulatorIsReadAfterAllThatAddToIt) {
  expect_proven(accumulator(2));
  expect_refused(accumulator(1), Fault::race, "the last of those that add");
}

// One rank writes to both others in turn slots and never hears from them; or it waits for what they said of earlier
// runs.
Plan broadcast(bool acknowledged) {
  Draft d("a one-way broadcast in two slots", 3);
  const BufferId x = d.input(0);
  const std::int32_t source = d.lane(0);
  for (int r : {1, 2}) {
    const BufferId slot = d.buffer(r, "slots", Buffer::Role::scratch, 2);
    const TaskId put = d.task(source, {x}, {slot});
    const TaskId read = d.task(d.lane(r), {slot}, {d.output(r)});
    d.signal(r, {put}, {read});
    if (!acknowledged) continue;
    d.signal(0, {read}, {put});
    d.plan.tasks[put].waits[0].value = 0;  // all of the runs before
  }
  return d.plan;
}

TEST(Protocols, TwoSlotsUnderAOneWayBroadcastNeedAnAcknowledgement) {
  expect_proven(broadcast(true));
  expect_refused(broadcast(false), Fault::race, "an acknowledgement: the source is three runs ahead");
}

// One plan writes a shared buffer of rank 1 from rank 0; another reads it on rank 1.
Plan writes_shared() {
  Draft d("writes what is shared", 2);
  const BufferId x = d.input(0), shared = d.buffer(1, "shared", Buffer::Role::input);
  d.plan.buffers[shared].shared = "kv";
  const std::int32_t lane = d.lane(0);
  const TaskId put = d.task(lane, {x}, {shared});
  const TaskId taken = d.task(d.lane(1), {}, {});
  d.signal(1, {put}, {taken});
  const TaskId end = d.task(lane, {}, {});
  d.signal(0, {taken}, {end});
  return d.plan;
}
Plan reads_shared(bool says_so) {
  Draft d("reads what is shared", 2);
  const BufferId shared = d.buffer(1, "shared", Buffer::Role::input);
  d.plan.buffers[shared].shared = "kv";
  const TaskId read = d.task(d.lane(1), {shared}, {d.output(1)});
  const TaskId end = d.task(d.lane(0), {}, {});
  if (says_so) d.signal(0, {read}, {end});
  return d.plan;
}

TEST(Protocols, TwoPlansThatShareABufferAreProvenInBothOrders) {
  const Plan writer = writes_shared(), good = reads_shared(true), bad = reads_shared(false);
  expect_proven(writer);
  expect_proven(good);
  EXPECT_TRUE(verify(filed(bad, "saying so")).proven()) << "alone it is fine";
  const std::vector<const Plan*> together{&writer, &good};
  EXPECT_TRUE(verify(together).proven()) << verify(together).refusal->text;
  const std::vector<const Plan*> apart{&writer, &bad};
  ASSERT_FALSE(verify(apart).proven());
  EXPECT_EQ(verify(apart).refusal->fault, Fault::race) << "the writer's next run comes while the other still reads";
  Plan other = good;
  other.buffers[0].dtype = DType::f32;
  other.buffers[1].dtype = DType::f32;
  const std::vector<const Plan*> unlike{&writer, &other};
  EXPECT_THROW(verify(unlike), Error);
}

}  // namespace
}  // namespace tileway
