// The tasks of all ranks and what each waits for, before they have lanes and signals.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "schedule/tiling.hpp"
#include "tileway/plan.hpp"

namespace tileway {

// `consumers`, all on one rank, start after all `producers`, on any ranks. It becomes one signal.
struct Join {
  std::int32_t rank = 0;
  std::vector<TaskId> producers;
  std::vector<TaskId> consumers;
};

// A tensor as one rank holds it: who writes each cell of it, and who waits for that.
struct Held {
  BufferId buffer = -1;
  std::int32_t rank = 0;
  Tiling tiling;
  std::vector<std::vector<TaskId>> writers;    // by cell
  std::vector<std::vector<TaskId>> consumers;  // by cell
  std::vector<TaskId> whole_consumers;         // wait for every cell
  std::vector<TaskId> readers;                 // everyone who reads it, waiting or not

  // `writer` writes that box.
  void written(const Box& box, TaskId writer);
};

// Collects tasks in an order in which every producer precedes its consumers.
class TaskGraph {
 public:
  TaskGraph(std::string name, const Topology& topology);

  BufferId add_buffer(Buffer buffer);
  std::int32_t add_origin(std::string text);
  // Adds a task. A write to another rank's buffer makes that buffer symmetric and waits for that rank to have begun
  // its run.
  TaskId add_task(Engine engine, std::int32_t rank, std::int32_t origin, const Body& body, std::vector<Access> reads,
                  std::vector<Access> writes);
  // The tasks of the members of one collective, whose bodies are the same.
  void add_joint(const std::vector<TaskId>& members);
  void add_join(Join join);
  // `task` reads a box of `held`: after the cells in it, or, where `fine` is false, after all cells.
  void depend(TaskId task, Held& held, const Box& box, bool fine);
  // Turns what was collected about a tensor into joins.
  void close(const Held& held);
  // Adds, for each rank, the task that ends its run: it waits for what peers wrote and nothing here waited for.
  void finish();

  Plan plan;
  std::vector<Engine> engines;  // by task
  std::vector<bool> moving;     // by task: moves data of a collective, to a peer or to where this rank wants it
  std::vector<Join> joins;
  std::vector<std::vector<TaskId>> joints;  // by number: the tasks of its members, in the order of their ranks

 private:
  std::vector<TaskId> opened_;  // by rank: the task that says "my run has begun, write to me"
  std::map<std::pair<std::int32_t, std::int32_t>, std::vector<TaskId>> writers_to_;  // (from, to)
  std::vector<std::vector<TaskId>> unobserved_;                                      // by rank
};

}  // namespace tileway
