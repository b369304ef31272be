// Writing a plan by hand, in few words.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "tileway/plan.hpp"

namespace tileway::testing {

// Every buffer is i32[4] and symmetric; every access is of a whole buffer unless a box is given.
class Draft {
 public:
  Draft(std::string name, int ranks) {
    plan.name = std::move(name);
    plan.schedule = "by hand";
    plan.origins = {"by hand"};
    plan.topology.ranks = ranks;
    plan.topology.lanes = 3;
    plan.topology.copy = 1;
    plan.topology.collective = 1;
  }

  BufferId buffer(int rank, std::string name, Buffer::Role role = Buffer::Role::scratch, int slots = 1) {
    Buffer buffer{.name = std::move(name), .rank = rank, .role = role, .dtype = DType::i32, .shape = {4}};
    buffer.symmetric = true;
    buffer.slots = slots;
    plan.buffers.push_back(std::move(buffer));
    return static_cast<BufferId>(plan.buffers.size()) - 1;
  }
  BufferId input(int rank) {
    plan.inputs.push_back({"x", rank, buffer(rank, "x", Buffer::Role::input)});
    return plan.inputs.back().buffer;
  }
  BufferId output(int rank) {
    plan.outputs.push_back({"y", rank, buffer(rank, "y")});
    return plan.outputs.back().buffer;
  }
  std::int32_t lane(int rank, Engine engine = Engine::compute) {
    plan.lanes.push_back({rank, engine, {}});
    return static_cast<std::int32_t>(plan.lanes.size()) - 1;
  }
  // A signal on a rank; it is raised by `from` and awaited by `to`.
  SignalId signal(int rank, std::vector<TaskId> from, std::vector<TaskId> to,
                  SignalInfo::Kind kind = SignalInfo::Kind::add) {
    const auto id = static_cast<SignalId>(plan.signals.size());
    const auto total = static_cast<std::uint32_t>(from.size());
    plan.signals.push_back({rank, kind, total});
    for (TaskId task : from) plan.tasks[task].notifies.push_back({id});
    for (TaskId task : to) plan.tasks[task].waits.push_back({id, total});
    return id;
  }
  // Nothing, a copy, or the sum of several buffers.
  TaskId task(std::int32_t lane, const std::vector<BufferId>& reads, const std::vector<BufferId>& writes) {
    Body body;
    if (!reads.empty()) body.kind = reads.size() == 1 ? Body::Kind::copy : Body::Kind::reduce_ranks;
    return add(lane, body, reads, writes);
  }
  TaskId joint(std::int32_t lane, std::int32_t number, BufferId read, BufferId write) {
    const TaskId id = add(lane, {.kind = Body::Kind::all_reduce}, {read}, {write});
    plan.tasks[id].joint = number;
    plan.tasks[id].after_previous = plan.tasks[id].index > 0;
    return id;
  }
  // By a collective library, between `given.size()` ranks: what each of them is given and gives; -1 is nothing.
  TaskId exchange(std::int32_t lane, std::int32_t number, const std::vector<BufferId>& given,
                  const std::vector<BufferId>& taken) {
    const BufferId some =
        std::max(*std::max_element(given.begin(), given.end()), *std::max_element(taken.begin(), taken.end()));
    const auto named = [&](std::vector<BufferId> list) {
      std::replace(list.begin(), list.end(), BufferId{-1}, some);
      return list;
    };
    const TaskId id = add(lane, {.kind = Body::Kind::exchange}, named(given), named(taken));
    Task& task = plan.tasks[id];
    task.joint = number;
    task.after_previous = task.index > 0;
    for (std::size_t m = 0; m < given.size(); ++m) {
      if (given[m] == -1) task.reads[m].box = {{0}, {0}};
      if (taken[m] == -1) task.writes[m].box = {{0}, {0}};
    }
    return id;
  }

  Plan plan;

 private:
  TaskId add(std::int32_t lane, const Body& body, const std::vector<BufferId>& reads,
             const std::vector<BufferId>& writes) {
    Task task;
    task.rank = plan.lanes[lane].rank;
    task.lane = lane;
    task.index = static_cast<std::int32_t>(plan.lanes[lane].tasks.size());
    task.body = static_cast<BodyId>(plan.bodies.size());
    plan.bodies.push_back(body);
    for (BufferId id : reads) task.reads.push_back({.buffer = id, .box = Box::whole({4})});
    for (BufferId id : writes)
      task.writes.push_back({.buffer = id, .box = Box::whole({4}), .mode = Access::Mode::write, .stage = Stage::store});
    const auto id = static_cast<TaskId>(plan.tasks.size());
    plan.lanes[lane].tasks.push_back(id);
    plan.tasks.push_back(std::move(task));
    return id;
  }
};

}  // namespace tileway::testing
