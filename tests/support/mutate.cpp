#include "support/mutate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace tileway::testing {
namespace {

const std::set<Fault> kOrder{Fault::race, Fault::unwritten, Fault::run_ahead};

class Mutator {
 public:
  explicit Mutator(const Plan& plan) : plan_(plan), notifiers_(plan.signals.size()) {
    for (std::size_t t = 0; t < plan.tasks.size(); ++t) {
      for (const Notify& notify : plan.tasks[t].notifies) notifiers_[notify.signal].push_back(static_cast<TaskId>(t));
    }
  }

  std::vector<Mutant> all() {
    for (std::size_t t = 0; t < plan_.tasks.size(); ++t) {
      const auto id = static_cast<TaskId>(t);
      for (std::size_t w = 0; w < plan_.tasks[t].waits.size(); ++w) edit_wait(id, w);
      for (std::size_t n = 0; n < plan_.tasks[t].notifies.size(); ++n) edit_notification(id, n);
      for (std::size_t w = 0; w < plan_.tasks[t].writes.size(); ++w) shift(id, w);
      if (plan_.tasks[t].after_previous && plan_.tasks[t].index > 0)
        add(Edit::drop_after_previous, {id}, kOrder).plan.tasks[t].after_previous = false;
    }
    for (std::size_t l = 0; l < plan_.lanes.size(); ++l) edit_lane(static_cast<std::int32_t>(l));
    for (std::size_t b = 0; b < plan_.buffers.size(); ++b) shrink(static_cast<BufferId>(b));
    return std::move(mutants_);
  }

 private:
  Mutant& add(Edit edit, std::vector<TaskId> tasks, std::set<Fault> expected, SignalId signal = -1) {
    mutants_.push_back({edit, plan_, std::move(tasks), {}, {}, std::move(expected), {}});
    if (signal != -1) mutants_.back().signals.push_back(signal);
    std::string text(name_of(edit));
    for (TaskId id : mutants_.back().tasks) text += fmt::format(", task {}", id);
    if (signal != -1) text += fmt::format(", signal {}", signal);
    mutants_.back().text = std::move(text);
    return mutants_.back();
  }

  // Tasks of the begin and the end of a run carry no data.
  bool acknowledges(TaskId waiter, SignalId signal) const {
    const auto idle = [&](TaskId id) { return plan_.bodies[plan_.tasks[id].body].kind == Body::Kind::none; };
    return idle(waiter) || std::all_of(notifiers_[signal].begin(), notifiers_[signal].end(), idle);
  }

  void edit_wait(TaskId id, std::size_t w) {
    const Wait& wait = plan_.tasks[id].waits[w];
    const bool acknowledgement = acknowledges(id, wait.signal);
    std::vector<Wait>& waits =
        add(acknowledgement ? Edit::drop_acknowledgement : Edit::drop_wait, {id}, kOrder, wait.signal)
            .plan.tasks[id]
            .waits;
    waits.erase(waits.begin() + static_cast<std::ptrdiff_t>(w));
    --add(Edit::lower_wait, {id}, kOrder, wait.signal).plan.tasks[id].waits[w].value;
  }

  // A plan whose signals count what is raised, and in which nobody waits for more.
  static void settle(Plan& plan, SignalId signal) {
    std::uint32_t total = 0;
    for (const Task& task : plan.tasks) {
      for (const Notify& notify : task.notifies) total += notify.signal == signal ? notify.amount : 0;
    }
    plan.signals[signal].total = total;
    if (total != 1) plan.signals[signal].kind = SignalInfo::Kind::add;
    for (Task& task : plan.tasks) {
      for (Wait& wait : task.waits) {
        if (wait.signal == signal) wait.value = std::min(wait.value, total);
      }
    }
  }

  void edit_notification(TaskId id, std::size_t n) {
    const Notify notify = plan_.tasks[id].notifies[n];
    Plan& without = add(Edit::drop_notification, {id}, kOrder, notify.signal).plan;
    without.tasks[id].notifies.erase(without.tasks[id].notifies.begin() + static_cast<std::ptrdiff_t>(n));
    settle(without, notify.signal);
    for (std::size_t s = 0; s < plan_.signals.size(); ++s) {
      if (plan_.signals[s].rank == plan_.signals[notify.signal].rank) continue;
      Mutant& mutant = add(Edit::redirect_notification, {id}, kOrder, notify.signal);
      mutant.signals.push_back(static_cast<SignalId>(s));
      Plan& redirected = mutant.plan;
      redirected.tasks[id].notifies[n].signal = static_cast<SignalId>(s);
      redirected.tasks[id].notifies[n].scope = Notify::Scope::system;
      settle(redirected, notify.signal);
      settle(redirected, static_cast<SignalId>(s));
      break;
    }
    if (notify.scope == Notify::Scope::system)
      add(Edit::weaken_scope, {id}, {Fault::scope}, notify.signal).plan.tasks[id].notifies[n].scope =
          Notify::Scope::device;
  }

  // Whether `later` waits, through any tasks, for `earlier`.
  bool depends(TaskId later, TaskId earlier) const {
    std::set<TaskId> seen;
    std::vector<TaskId> open{later};
    while (!open.empty()) {
      const TaskId at = open.back();
      open.pop_back();
      std::vector<TaskId> before;
      for (const Wait& wait : plan_.tasks[at].waits)
        before.insert(before.end(), notifiers_[wait.signal].begin(), notifiers_[wait.signal].end());
      // Beyond `later` itself a lane's order counts too.
      if (at != later && plan_.tasks[at].index > 0)
        before.push_back(plan_.lanes[plan_.tasks[at].lane].tasks[plan_.tasks[at].index - 1]);
      for (TaskId id : before) {
        if (id == earlier) return true;
        if (id != later && seen.insert(id).second) open.push_back(id);
      }
    }
    return false;
  }

  static void number(Plan& plan, std::int32_t lane) {
    for (std::size_t i = 0; i < plan.lanes[lane].tasks.size(); ++i) {
      Task& task = plan.tasks[plan.lanes[lane].tasks[i]];
      task.lane = lane;
      task.index = static_cast<std::int32_t>(i);
    }
  }

  void edit_lane(std::int32_t lane) {
    const std::vector<TaskId>& tasks = plan_.lanes[lane].tasks;
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      const bool joint = plan_.tasks[tasks[i]].joint != -1;
      if (joint && i + 1 < tasks.size()) {
        Plan& swapped = add(Edit::swap_joints, {tasks[i], tasks[i + 1]}, {Fault::deadlock}).plan;
        std::swap(swapped.lanes[lane].tasks[i], swapped.lanes[lane].tasks[i + 1]);
        number(swapped, lane);
      }
      for (std::size_t j = i + 1; j < tasks.size() && !joint; ++j) {
        if (!depends(tasks[j], tasks[i])) continue;
        Plan& swapped = add(Edit::swap_tasks, {tasks[i], tasks[j]}, {Fault::deadlock}).plan;
        std::swap(swapped.lanes[lane].tasks[i], swapped.lanes[lane].tasks[j]);
        number(swapped, lane);
        break;
      }
      move(lane, tasks[i]);
    }
  }

  // To the front of another lane that has something that the task depends on, and to a lane of its own.
  void move(std::int32_t lane, TaskId id) {
    const auto taken_out = [&](Plan& plan) { std::erase(plan.lanes[lane].tasks, id); };
    for (std::size_t l = 0; l < plan_.lanes.size(); ++l) {
      const Lane& other = plan_.lanes[l];
      if (static_cast<std::int32_t>(l) == lane || other.rank != plan_.lanes[lane].rank ||
          other.engine != plan_.lanes[lane].engine)
        continue;
      if (std::none_of(other.tasks.begin(), other.tasks.end(), [&](TaskId before) { return depends(id, before); }))
        continue;
      Plan& moved = add(Edit::move_task, {id}, {Fault::deadlock}).plan;
      taken_out(moved);
      moved.lanes[l].tasks.insert(moved.lanes[l].tasks.begin(), id);
      number(moved, lane);
      number(moved, static_cast<std::int32_t>(l));
      break;
    }
    if (plan_.tasks[id].index != 1) return;
    Plan& alone = add(Edit::move_task, {id}, {Fault::residency}).plan;
    taken_out(alone);
    while (true) {  // as many lanes as the machine has, and one
      alone.lanes.push_back({plan_.lanes[lane].rank, plan_.lanes[lane].engine, {}});
      const auto same = std::count_if(alone.lanes.begin(), alone.lanes.end(), [&](const Lane& l) {
        return l.rank == alone.lanes.back().rank && l.engine == alone.lanes.back().engine;
      });
      const Engine engine = plan_.lanes[lane].engine;
      if (same > (engine == Engine::compute ? plan_.topology.lanes
                  : engine == Engine::copy  ? plan_.topology.copy
                                            : plan_.topology.collective))
        break;
    }
    alone.lanes.back().tasks = {id};
    number(alone, lane);
    number(alone, static_cast<std::int32_t>(alone.lanes.size()) - 1);
  }

  void shrink(BufferId id) {
    const Buffer& buffer = plan_.buffers[id];
    const bool used = std::any_of(plan_.tasks.begin(), plan_.tasks.end(), [&](const Task& task) {
      const auto touches = [&](const Access& access) {
        return access.buffer == id && !access.box.empty() && access.partition == -1;
      };
      return std::any_of(task.reads.begin(), task.reads.end(), touches) ||
             std::any_of(task.writes.begin(), task.writes.end(), touches);
    });
    if (!used || buffer.shape.empty() || buffer.role == Buffer::Role::constant) return;
    Mutant& mutant = add(Edit::shrink_buffer, {}, {});
    --mutant.plan.buffers[id].shape[0];
    mutant.buffer = fmt::format("buffer {}", id);
    mutant.text += ", " + mutant.buffer;
  }

  void shift(TaskId id, std::size_t w) {
    const Access& write = plan_.tasks[id].writes[w];
    const Shape& shape = plan_.buffers[write.buffer].shape;
    if (write.box.empty() || shape.empty() || write.partition != -1) return;
    const std::size_t dim = write.box.extent[0] < shape[0] || shape.size() == 1 ? 0 : shape.size() - 1;
    const bool up = write.box.start[dim] + write.box.extent[dim] < shape[dim];
    Mutant& mutant = add(Edit::shift_box, {id}, {Fault::race, Fault::unwritten});
    mutant.plan.tasks[id].writes[w].box.start[dim] += up ? 1 : -1;
    mutant.buffer = fmt::format("buffer {}", write.buffer);
  }

  const Plan& plan_;
  std::vector<std::vector<TaskId>> notifiers_;
  std::vector<Mutant> mutants_;
};

}  // namespace

std::string_view name_of(Edit edit) {
  constexpr std::array<std::string_view, kEditCount> kNames{
      "drop a wait",    "drop an acknowledgement", "lower a wait", "drop a notification", "redirect a notification",
      "weaken a scope", "swap two tasks",          "move a task",  "drop after_previous", "shrink a buffer",
      "shift a box",    "swap two joints"};
  return kNames[static_cast<std::size_t>(edit)];
}

std::vector<Mutant> mutants(const Plan& plan) { return Mutator(plan).all(); }

}  // namespace tileway::testing
