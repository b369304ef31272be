// Faults that users of other systems have reported, each as a plan that is proven and that plan with the fault, which
// is refused for just that.
#include <gtest/gtest.h>

#include "interleaving/filed_plans.hpp"
#include "support/draft.hpp"
#include "tileway/verify.hpp"

namespace tileway {
namespace {

using testing::Draft;
using testing::expect_malformed;
using testing::expect_proven;
using testing::expect_refused;

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

TEST(FieldFaults, AFlagForAPeerIsNotRaisedAtDeviceScope) {  // a lock at device scope that peers poll
  expect_proven(Handoff().d.plan);
  Handoff bad;
  bad.d.plan.tasks[bad.put].notifies[0].scope = Notify::Scope::device;
  expect_refused(bad.d.plan, Fault::scope, "system scope");
}

TEST(FieldFaults, APushedTileIsAwaited) {  // a push all_gather that leaves stale data on peers
  Handoff bad;
  bad.d.plan.tasks[bad.read].waits.clear();
  expect_refused(bad.d.plan, Fault::race, "the wait for what was pushed");
}

TEST(FieldFaults, AFastRankDoesNotOverwriteWhatASlowOneHasNotRead) {  // a slot that the slow island has not read
  Handoff bad;
  bad.d.plan.tasks[bad.end].waits.clear();
  expect_refused(bad.d.plan, Fault::race, "the acknowledgement");
}

TEST(FieldFaults, ABarrierIsBehindTheStoresThatItPublishes) {  // a barrier that never releases the stores
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

TEST(FieldFaults,
     TwoAlgorithmsDoNotShareACounter) {  // one-shot and two-shot on one counter; two streams on one channel
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

TEST(FieldFaults, ARankWithNothingToSendStillNotifies) {  // one side skips a send of zero bytes that the other awaits
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

TEST(FieldFaults, RanksDoNotWaitForEachOtherBeforeTheyProduce) {  // each waits before it sends
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

TEST(FieldFaults, WhatWaitsIsResident) {  // more blocks that spin than the device holds
  Handoff bad;
  for (int i = 0; i < 3; ++i) bad.d.task(bad.d.lane(1), {}, {});
  expect_refused(bad.d.plan, Fault::residency, "room for all lanes");
}

TEST(FieldFaults, ACopyIsNotQueuedBehindWhatWaitsForIt) {  // kernel and copy contend for one queue
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

TEST(FieldFaults, TheSecondStageReadsAfterAllRanksHaveReduced) {  // a second stage that reads without a fence
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

TEST(FieldFaults, AReaderInTheSameLaneWaitsForTheStore) {  // a pipelined lane loads before the task before has stored
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
