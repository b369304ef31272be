// Protocols of the field, each as a plan that is proven, and each with the fault for which it is known, which is
// refused for just that.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "plan/edit.hpp"
#include "support/draft.hpp"
#include "support/mutate.hpp"
#include "support/run.hpp"
#include "tileway/error.hpp"
#include "tileway/explore.hpp"
#include "tileway/ops.hpp"
#include "tileway/verify.hpp"

namespace tileway {
namespace {

using testing::Draft;

// The plans lie in tests/interleaving/plans, for whoever wants to look at them or try `tileway verify`; what is looked
// at here is those files. TILEWAY_WRITE_PLANS=1 writes them anew.
Plan filed(const Plan& plan, const std::string& without = {}) {
  std::string name = plan.name + (without.empty() ? "" : ", without " + without.substr(0, without.find(':')));
  std::replace_if(
      name.begin(), name.end(), [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  const std::string path = std::string(TILEWAY_TEST_SOURCE) + "/interleaving/plans/" + name + ".json";
  if (std::getenv("TILEWAY_WRITE_PLANS")) std::ofstream(path) << to_json(plan);
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  EXPECT_EQ(text, to_json(plan)) << path << " is another plan";
  return plan_from_json(text);
}

void expect_proven(const Plan& plan) {
  const Verdict verdict = verify(filed(plan));
  EXPECT_TRUE(verdict.proven()) << plan.name << "\n" << verdict.refusal->text;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const Exploration exploration = explore(plan, seed);
    EXPECT_FALSE(exploration.finding) << plan.name << " seed " << seed << "\n" << exploration.finding->text;
  }
}

void expect_refused(const Plan& plan, Fault fault, const std::string& because) {
  const Verdict verdict = verify(filed(plan, because));
  ASSERT_FALSE(verdict.proven()) << plan.name << " without " << because;
  EXPECT_EQ(name_of(verdict.refusal->fault), name_of(fault)) << because << "\n" << verdict.refusal->text;
  if (fault == Fault::scope || fault == Fault::residency) return;  // no matter of order
  bool found = false;
  for (std::uint64_t seed = 0; seed < 200 && !found; ++seed) found = explore(plan, seed).finding.has_value();
  EXPECT_TRUE(found) << plan.name << ": no order shows " << because;
}

void expect_malformed(Plan plan, const std::string& text) {
  try {
    verify(plan);
    ADD_FAILURE() << plan.name << " is taken";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
  }
}

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

// Rank 0 gives a tile to rank 1, which reads it and says so: what many faults are variations of.
struct Handoff {
  Draft d{"a tile for a peer", 2};
  BufferId x, arrived;
  std::int32_t giving, taking;
  TaskId put, read, end;
  Handoff() {
    x = d.input(0);
    arrived = d.buffer(1, "arrived");
    giving = d.lane(0);
    taking = d.lane(1);
    put = d.task(giving, {x}, {arrived});
    end = d.task(giving, {}, {});
    read = d.task(taking, {arrived}, {d.output(1)});
    d.signal(1, {put}, {read});
    d.signal(0, {read}, {end});
  }
};

TEST(Protocols, AFlagForAPeerIsNotRaisedAtDeviceScope) {  // a lock at device scope that peers poll
  expect_proven(Handoff().d.plan);
  Handoff bad;
  bad.d.plan.tasks[bad.put].notifies[0].scope = Notify::Scope::device;
  expect_refused(bad.d.plan, Fault::scope, "system scope");
}

TEST(Protocols, APushedTileIsAwaited) {  // a push all_gather that leaves stale data on peers
  Handoff bad;
  bad.d.plan.tasks[bad.read].waits.clear();
  expect_refused(bad.d.plan, Fault::race, "the wait for what was pushed");
}

TEST(Protocols, AFastRankDoesNotOverwriteWhatASlowOneHasNotRead) {  // a slot that the slow island has not read
  Handoff bad;
  bad.d.plan.tasks[bad.end].waits.clear();
  expect_refused(bad.d.plan, Fault::race, "the acknowledgement");
}

TEST(Protocols, ABarrierIsBehindTheStoresThatItPublishes) {  // a barrier that never releases the stores
  Handoff good;
  good.d.plan.name = "a barrier for a peer";
  const TaskId barrier = good.d.task(good.d.lane(0), {}, {});
  good.d.plan.tasks[good.put].notifies.clear();
  good.d.plan.tasks[barrier].notifies.push_back({0});
  Plan bad = good.d.plan;
  expect_refused(bad, Fault::race, "an order of the barrier after the stores");
  good.d.signal(0, {good.put}, {barrier});
  expect_proven(good.d.plan);
}

TEST(Protocols, TwoAlgorithmsDoNotShareACounter) {  // one-shot and two-shot on one counter; two streams on one channel
  const auto plan = [](bool shared) {
    Draft d("two puts", 2);
    const BufferId x = d.input(0), a = d.buffer(1, "a"), b = d.buffer(1, "b");
    const TaskId first = d.task(d.lane(0), {x}, {a}), second = d.task(d.lane(0), {x}, {b});
    const TaskId one = d.task(d.lane(1), {a}, {d.output(1)}), two = d.task(d.lane(1), {b}, {d.output(1)});
    if (shared) {
      d.signal(1, {first, second}, {one, two});
      d.plan.tasks[one].waits[0].value = d.plan.tasks[two].waits[0].value = 1;
    } else {
      d.signal(1, {first}, {one});
      d.signal(1, {second}, {two});
    }
    for (TaskId put : {first, second}) {
      const TaskId end = d.task(d.plan.tasks[put].lane, {}, {});
      d.signal(0, {one, two}, {end});
    }
    return d.plan;
  };
  expect_proven(plan(false));
  expect_refused(plan(true), Fault::race, "a counter for each");
}

TEST(Protocols, ARankWithNothingToSendStillNotifies) {  // one side skips a send of zero bytes that the other awaits
  Handoff empty;
  empty.d.plan.name = "a tile of nothing for a peer";
  empty.d.plan.tasks[empty.put].reads[0].box = empty.d.plan.tasks[empty.put].writes[0].box = {{0}, {0}};
  empty.d.plan.tasks[empty.read].reads[0].box = {{0}, {0}};
  empty.d.plan.tasks[empty.read].writes[0].box = {{0}, {0}};
  empty.d.plan.outputs.clear();
  expect_proven(empty.d.plan);
  empty.d.plan.tasks[empty.put].notifies.clear();
  expect_malformed(empty.d.plan, "the total is not what its notifications add up to");
  empty.d.plan.signals[0].total = 0;
  expect_malformed(empty.d.plan, "waits for more than signal 0 reaches");
}

TEST(Protocols, RanksDoNotWaitForEachOtherBeforeTheyProduce) {  // each waits before it sends
  const auto plan = [](bool send_first) {
    Draft d("an exchange", 2);
    std::vector<BufferId> x, in;
    std::vector<TaskId> put(2), read(2);
    for (int r : {0, 1}) x.push_back(d.input(r));
    for (int r : {0, 1}) in.push_back(d.buffer(r, "in", Buffer::Role::scratch, 2));
    for (int r : {0, 1}) {
      const std::int32_t lane = d.lane(r);
      if (send_first) put[r] = d.task(lane, {x[r]}, {in[1 - r]});
      read[r] = d.task(lane, {in[r]}, {d.output(r)});
      if (!send_first) put[r] = d.task(lane, {x[r]}, {in[1 - r]});
    }
    for (int r : {0, 1}) d.signal(r, {put[1 - r]}, {read[r]});
    return d.plan;
  };
  expect_proven(plan(true));
  expect_refused(plan(false), Fault::deadlock, "sending first");
}

TEST(Protocols, WhatWaitsIsResident) {  // more blocks that spin than the device holds
  Handoff bad;
  for (int i = 0; i < 3; ++i) bad.d.task(bad.d.lane(1), {}, {});
  expect_refused(bad.d.plan, Fault::residency, "room for all lanes");
}

TEST(Protocols, ACopyIsNotQueuedBehindWhatWaitsForIt) {  // kernel and copy contend for one queue
  const auto plan = [](bool own_queue) {
    Draft d("copy and compute", 2);
    const BufferId x = d.input(0), there = d.buffer(1, "there"), back = d.buffer(0, "back");
    const std::int32_t sm = d.lane(0);
    const std::int32_t queue = own_queue ? d.lane(0, Engine::copy) : sm;
    TaskId put = -1, wait_back = -1;
    if (own_queue) put = d.task(queue, {x}, {there});
    wait_back = d.task(sm, {back}, {d.output(0)});
    if (!own_queue) put = d.task(queue, {x}, {there});
    const TaskId reply = d.task(d.lane(1), {there}, {back});
    d.signal(1, {put}, {reply});
    d.signal(0, {reply}, {wait_back});
    return d.plan;
  };
  expect_proven(plan(true));
  expect_refused(plan(false), Fault::deadlock, "a queue of its own");
}

TEST(Protocols, TheSecondStageReadsAfterAllRanksHaveReduced) {  // a second stage that reads without a fence
  const auto plan = [](bool waits_for_all) {
    Draft d("two-shot, the gather by pulling", 2);
    std::vector<BufferId> x, reduced;
    std::vector<TaskId> reduce(2), pull(2);
    std::vector<std::int32_t> lane;
    for (int r : {0, 1}) x.push_back(d.input(r));
    for (int r : {0, 1}) reduced.push_back(d.buffer(r, "reduced"));
    for (int r : {0, 1}) lane.push_back(d.lane(r));
    for (int r : {0, 1}) reduce[r] = d.task(lane[r], {x[r]}, {reduced[r]});
    for (int r : {0, 1}) pull[r] = d.task(lane[r], {reduced[0], reduced[1]}, {d.output(r)});
    for (int r : {0, 1}) d.plan.tasks[pull[r]].after_previous = true;
    for (int r : {0, 1}) {
      if (waits_for_all) d.signal(r, {reduce[1 - r]}, {pull[r]});
      const TaskId end = d.task(lane[r], {}, {});
      d.signal(r, {pull[1 - r]}, {end});
    }
    return d.plan;
  };
  expect_proven(plan(true));
  expect_refused(plan(false), Fault::race, "the wait for the peer's part");
}

TEST(Protocols, AReaderInTheSameLaneWaitsForTheStore) {  // a pipelined lane loads before the task before has stored
  const auto plan = [](bool after_previous) {
    Draft d("producer and consumer in one lane", 1);
    const BufferId x = d.input(0), a = d.buffer(0, "a");
    const std::int32_t lane = d.lane(0);
    d.task(lane, {x}, {a});
    d.plan.tasks[d.task(lane, {a}, {d.output(0)})].after_previous = after_previous;
    return d.plan;
  };
  expect_proven(plan(true));
  expect_refused(plan(false), Fault::race, "after_previous");
}

}  // namespace
}  // namespace tileway
