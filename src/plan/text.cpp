// A plan for a person.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "plan/joint.hpp"
#include "plan/layout.hpp"
#include "plan/names.hpp"
#include "tileway/plan.hpp"

namespace tileway {
namespace {

std::string access_text(const Plan& plan, const Access& access) {
  const Buffer& buffer = plan.buffers[access.buffer];
  std::string text =
      fmt::format("{}:{}'{}'{}", access.buffer, fmt::format("r{}.", buffer.rank), buffer.name, to_string(access.box));
  if (access.mode == Access::Mode::accumulate) text += fmt::format(" {}", name_of(access.op));
  if (buffer.slots != 1) text += fmt::format(" in one of {} slots", buffer.slots);
  if (access.partition != -1) text += fmt::format(" slice {} of partition {}", access.slice, access.partition);
  return text;
}

std::string task_text(const Plan& plan, TaskId id) {
  const Task& task = plan.tasks[id];
  const Body& body = plan.bodies[task.body];
  std::string text = fmt::format("  {:>5} {:<24} {}", id, plan.origins[task.origin], name_of(body.kind));
  if (body.kind == Body::Kind::pointwise) text += fmt::format(" {}", name_of(body.function));
  if (body.tf32) text += " tf32";
  for (const Step& step : body.epilogue)
    text += fmt::format(", {}", step.cast ? name_of(step.dtype) : name_of(step.function));
  if (task.joint != -1) text += fmt::format(", joint {}", task.joint);
  if (task.after_previous) text += ", after the one before has stored";
  text += "\n";
  for (const Wait& wait : task.waits)
    text += fmt::format("          wait   signal {} >= {}  at {}\n", wait.signal, wait.value,
                        name_in(kStageNames, wait.stage));
  for (const auto* list : {&task.reads, &task.writes}) {
    for (const Access& access : *list) {
      text += fmt::format("          {:<6} {}  at {}\n", name_in(kModeNames, access.mode), access_text(plan, access),
                          name_in(kStageNames, access.stage));
    }
  }
  for (const Notify& notify : task.notifies) {
    const SignalInfo& signal = plan.signals[notify.signal];
    text += fmt::format("          notify signal {} on rank {} +{} of {}, {} scope", notify.signal, signal.rank,
                        notify.amount, signal.total, name_in(kScopeNames, notify.scope));
    text +=
        signal.kind == SignalInfo::Kind::add ? "\n" : fmt::format(", a {}\n", name_in(kSignalKindNames, signal.kind));
  }
  return text;
}

}  // namespace

std::string to_text(const Plan& plan, bool full) {
  const PlanLayout layout(plan);
  std::map<std::pair<std::int32_t, std::int32_t>, std::int64_t> links;
  const auto bytes = [&](const Access& access) {
    return access.box.volume() * static_cast<std::int64_t>(size_of(plan.buffers[access.buffer].dtype));
  };
  std::size_t waits = 0;
  for (const Task& task : plan.tasks) {
    waits += task.waits.size();
    for (const Access& write : task.writes) {
      const std::int32_t to = plan.buffers[write.buffer].rank;
      if (to != task.rank) links[{task.rank, to}] += bytes(write);
    }
  }
  for (const std::vector<TaskId>& members : joints_of(plan)) {
    for (TaskId id : members) {
      const Task& task = plan.tasks[id];
      if (plan.bodies[task.body].kind != Body::Kind::exchange) continue;
      for (std::size_t to = 0; to < members.size(); ++to)
        links[{task.rank, plan.tasks[members[to]].rank}] += bytes(task.reads[to]);
    }
  }
  std::int64_t sent = 0;
  std::int64_t busiest = 0;
  for (const auto& [pair, over] : links) {
    sent += over;
    busiest = std::max(busiest, over);
  }
  std::string text = fmt::format("plan {}, schedule {}\n  for {}\n", plan.name, plan.schedule, plan.topology.to_text());
  text += fmt::format("  {} tasks in {} lanes, {} buffers, {} signals, {} waits\n", plan.tasks.size(),
                      plan.lanes.size(), plan.buffers.size(), plan.signals.size(), waits);
  text += fmt::format("  {} bytes sent, at most {} over one link; {} bytes of symmetric memory a rank\n", sent, busiest,
                      layout.symmetric_bytes);
  text += fmt::format("  fingerprint {:016x}\n", fingerprint(plan));
  std::map<std::pair<std::string, std::string>, std::size_t> counts;
  for (const Lane& lane : plan.lanes) {
    for (TaskId id : lane.tasks) ++counts[{plan.origins[plan.tasks[id].origin], std::string(name_of(lane.engine))}];
  }
  for (const std::string& origin : plan.origins) {
    for (const std::string_view engine : kEngineNames) {
      const auto found = counts.find({origin, std::string(engine)});
      if (found != counts.end())
        text += fmt::format("  {:<24} {:>7} tasks on {} lanes\n", origin, found->second, engine);
    }
  }
  if (!full) return text;
  for (std::size_t l = 0; l < plan.lanes.size(); ++l) {
    text += fmt::format("lane {}: rank {}, {}\n", l, plan.lanes[l].rank, name_of(plan.lanes[l].engine));
    for (TaskId id : plan.lanes[l].tasks) text += task_text(plan, id);
  }
  return text;
}

}  // namespace tileway
