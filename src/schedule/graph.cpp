#include "schedule/graph.hpp"

#include <algorithm>

#include "tileway/error.hpp"

namespace tileway {
namespace {

void sort_unique(std::vector<TaskId>& tasks) {
  std::sort(tasks.begin(), tasks.end());
  tasks.erase(std::unique(tasks.begin(), tasks.end()), tasks.end());
}

}  // namespace

void Held::written(const Box& box, TaskId writer) {
  tiling.overlapping(box, [&](std::size_t cell) { writers[cell].push_back(writer); });
}

TaskGraph::TaskGraph(std::string name, const Topology& topology) {
  plan.name = std::move(name);
  plan.topology = topology;
  unobserved_.resize(topology.ranks);
  const std::int32_t origin = add_origin("begin");
  for (std::int32_t rank = 0; rank < topology.ranks; ++rank) {
    opened_.push_back(add_task(Engine::compute, rank, origin, {}, {}, {}));
  }
}

BufferId TaskGraph::add_buffer(Buffer buffer) {
  plan.buffers.push_back(std::move(buffer));
  return static_cast<BufferId>(plan.buffers.size()) - 1;
}

std::int32_t TaskGraph::add_origin(std::string text) {
  plan.origins.push_back(std::move(text));
  return static_cast<std::int32_t>(plan.origins.size()) - 1;
}

TaskId TaskGraph::add_task(Engine engine, std::int32_t rank, std::int32_t origin, const Body& body,
                           std::vector<Access> reads, std::vector<Access> writes) {
  const auto id = static_cast<TaskId>(plan.tasks.size());
  Task task;
  task.rank = rank;
  task.origin = origin;
  if (plan.bodies.empty() || !(plan.bodies.back() == body)) {
    const auto found = std::find(plan.bodies.begin(), plan.bodies.end(), body);
    task.body = static_cast<BodyId>(found - plan.bodies.begin());
    if (found == plan.bodies.end()) plan.bodies.push_back(body);
  } else {
    task.body = static_cast<BodyId>(plan.bodies.size()) - 1;
  }
  for (const Access& write : writes) {
    Buffer& target = plan.buffers[write.buffer];
    if (target.rank == rank) continue;
    target.symmetric = true;
    writers_to_[{rank, target.rank}].push_back(id);
  }
  task.reads = std::move(reads);
  task.writes = std::move(writes);
  plan.tasks.push_back(std::move(task));
  moving.push_back(engine != Engine::compute);
  engines.push_back(engine == Engine::copy && plan.topology.copy == 0 ? Engine::compute : engine);
  return id;
}

void TaskGraph::add_joint(const std::vector<TaskId>& members) {
  for (TaskId member : members) plan.tasks[member].joint = static_cast<std::int32_t>(joints.size());
  joints.push_back(members);
}

void TaskGraph::add_join(Join join) {
  sort_unique(join.producers);
  sort_unique(join.consumers);
  if (join.producers.empty() || join.consumers.empty()) return;
  joins.push_back(std::move(join));
}

void TaskGraph::depend(TaskId task, Held& held, const Box& box, bool fine) {
  if (box.empty()) return;
  held.readers.push_back(task);
  if (held.writers.empty()) return;  // an input: ready before the run
  if (!fine) {
    held.whole_consumers.push_back(task);
    return;
  }
  held.tiling.overlapping(box, [&](std::size_t cell) { held.consumers[cell].push_back(task); });
}

void TaskGraph::close(const Held& held) {
  const bool observed_whole = !held.whole_consumers.empty();
  if (observed_whole) {
    Join join{held.rank, {}, held.whole_consumers};
    for (const auto& writers : held.writers)
      join.producers.insert(join.producers.end(), writers.begin(), writers.end());
    add_join(std::move(join));
  }
  // Cells that the same tasks wait for share a join.
  std::map<std::vector<TaskId>, std::vector<TaskId>> producers_of;
  for (std::size_t cell = 0; cell < held.writers.size(); ++cell) {
    std::vector<TaskId> consumers = held.consumers[cell];
    sort_unique(consumers);
    if (!consumers.empty()) {
      auto& producers = producers_of[std::move(consumers)];
      producers.insert(producers.end(), held.writers[cell].begin(), held.writers[cell].end());
    } else if (!observed_whole) {
      for (TaskId writer : held.writers[cell]) {
        if (plan.tasks[writer].rank != held.rank) unobserved_[held.rank].push_back(writer);
      }
    }
  }
  for (auto& [consumers, producers] : producers_of) add_join({held.rank, std::move(producers), consumers});
}

void TaskGraph::finish() {
  for (const auto& [pair, tasks] : writers_to_) add_join({pair.first, {opened_[pair.second]}, tasks});
  const std::int32_t origin = add_origin("end");
  for (std::int32_t rank = 0; rank < plan.ranks(); ++rank) {
    if (unobserved_[rank].empty()) continue;
    const TaskId end = add_task(Engine::compute, rank, origin, {}, {}, {});
    add_join({rank, unobserved_[rank], {end}});
  }
}

}  // namespace tileway
