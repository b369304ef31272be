#include "plan/edit.hpp"

#include <algorithm>
#include <set>

namespace tileway {
void settle_signals(Plan& plan) {
  std::vector<std::uint32_t> total(plan.signals.size(), 0);
  std::vector<std::uint32_t> waits(plan.signals.size(), 0);
  for (const Task& task : plan.tasks) {
    for (const Notify& notify : task.notifies) total[notify.signal] += notify.amount;
    for (const Wait& wait : task.waits) ++waits[wait.signal];
  }
  for (std::size_t s = 0; s < plan.signals.size(); ++s) {
    SignalInfo& signal = plan.signals[s];
    signal.total = total[s];
    if (signal.total != 1 || (signal.kind == SignalInfo::Kind::gate && waits[s] != 1))
      signal.kind = SignalInfo::Kind::add;
  }
  for (Task& task : plan.tasks) {
    for (Wait& wait : task.waits) wait.value = std::min(wait.value, total[wait.signal]);
  }
}

Plan without_tasks(const Plan& plan, std::vector<bool> gone) {
  std::set<std::int32_t> joints;
  for (std::size_t t = 0; t < plan.tasks.size(); ++t) {
    if (gone[t] && plan.tasks[t].joint != -1) joints.insert(plan.tasks[t].joint);
  }
  Plan rest = plan;
  rest.tasks.clear();
  std::set<BufferId> damaged;
  std::vector<TaskId> renamed(plan.tasks.size(), -1);
  for (std::size_t t = 0; t < plan.tasks.size(); ++t) {
    const Task& task = plan.tasks[t];
    if (gone[t] || joints.contains(task.joint)) {
      for (const Access& write : task.writes) damaged.insert(write.buffer);
      continue;
    }
    renamed[t] = static_cast<TaskId>(rest.tasks.size());
    rest.tasks.push_back(task);
  }
  for (Lane& lane : rest.lanes) {
    std::vector<TaskId> tasks;
    for (TaskId id : lane.tasks) {
      if (renamed[id] == -1) continue;
      rest.tasks[renamed[id]].index = static_cast<std::int32_t>(tasks.size());
      tasks.push_back(renamed[id]);
    }
    lane.tasks = std::move(tasks);
  }
  std::erase_if(rest.outputs, [&](const Plan::Binding& output) { return damaged.contains(output.buffer); });
  settle_signals(rest);
  return rest;
}

Plan without_wait(const Plan& plan, TaskId task, std::size_t wait) {
  Plan rest = plan;
  std::vector<Wait>& waits = rest.tasks[task].waits;
  waits.erase(waits.begin() + static_cast<std::ptrdiff_t>(wait));
  settle_signals(rest);
  return rest;
}

}  // namespace tileway
