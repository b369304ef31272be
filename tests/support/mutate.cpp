#include "support/mutate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <random>

#include "plan/edit.hpp"

namespace tileway::testing {
namespace {

const std::set<Fault> kOrder{Fault::race, Fault::unwritten, Fault::run_ahead};

class Mutator {
 public:
  Mutator(const Plan& plan, std::uint64_t every, std::uint64_t seed)
      : plan_(plan), every_(every), random_(seed), notifiers_(plan.signals.size()) {
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
        add(Edit::drop_after_previous, {id}, kOrder, -1, [id](Plan& plan) { plan.tasks[id].after_previous = false; });
    }
    for (std::size_t l = 0; l < plan_.lanes.size(); ++l) edit_lane(static_cast<std::int32_t>(l));
    for (std::size_t b = 0; b < plan_.buffers.size(); ++b) shrink(static_cast<BufferId>(b));
    return std::move(mutants_);
  }

 private:
  bool drawn() { return every_ == 1 || random_() % every_ == 0; }

  void add(Edit edit, std::vector<TaskId> tasks, std::set<Fault> expected, SignalId signal,
           std::function<void(Plan&)> apply, std::string buffer = {}) {
    Mutant mutant{edit, std::move(apply), std::move(tasks), {}, std::move(buffer), std::move(expected), {}};
    mutant.text = name_of(edit);
    for (TaskId id : mutant.tasks) mutant.text += fmt::format(", task {}", id);
    if (signal != -1) mutant.signals.push_back(signal);
    if (signal != -1) mutant.text += fmt::format(", signal {}", signal);
    if (!mutant.buffer.empty()) mutant.text += ", " + mutant.buffer;
    mutants_.push_back(std::move(mutant));
  }

  // Tasks of the begin and the end of a run carry no data.
  bool acknowledges(TaskId waiter, SignalId signal) const {
    const auto idle = [&](TaskId id) { return plan_.bodies[plan_.tasks[id].body].kind == Body::Kind::none; };
    return idle(waiter) || std::all_of(notifiers_[signal].begin(), notifiers_[signal].end(), idle);
  }

  void edit_wait(TaskId id, std::size_t w) {
    const SignalId signal = plan_.tasks[id].waits[w].signal;
    const Edit drop = acknowledges(id, signal) ? Edit::drop_acknowledgement : Edit::drop_wait;
    if (drawn()) {
      add(drop, {id}, kOrder, signal, [id, w](Plan& plan) {
        std::vector<Wait>& waits = plan.tasks[id].waits;
        waits.erase(waits.begin() + static_cast<std::ptrdiff_t>(w));
      });
    }
    if (drawn()) add(Edit::lower_wait, {id}, kOrder, signal, [id, w](Plan& plan) { --plan.tasks[id].waits[w].value; });
  }

  void edit_notification(TaskId id, std::size_t n) {
    const Notify notify = plan_.tasks[id].notifies[n];
    if (drawn()) {
      add(Edit::drop_notification, {id}, kOrder, notify.signal, [=](Plan& plan) {
        std::vector<Notify>& notifies = plan.tasks[id].notifies;
        notifies.erase(notifies.begin() + static_cast<std::ptrdiff_t>(n));
        settle_signals(plan);
      });
    }
    for (std::size_t s = 0; s < plan_.signals.size() && drawn(); ++s) {
      const auto other = static_cast<SignalId>(s);
      if (plan_.signals[s].rank == plan_.signals[notify.signal].rank) continue;
      add(Edit::redirect_notification, {id}, kOrder, notify.signal, [=](Plan& plan) {
        plan.tasks[id].notifies[n].signal = other;
        plan.tasks[id].notifies[n].scope = Notify::Scope::system;
        settle_signals(plan);
      });
      mutants_.back().signals.push_back(other);
      break;
    }
    if (notify.scope == Notify::Scope::system && drawn()) {
      add(Edit::weaken_scope, {id}, {Fault::scope}, notify.signal,
          [=](Plan& plan) { plan.tasks[id].notifies[n].scope = Notify::Scope::device; });
    }
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

  static void exchange(Plan& plan, std::int32_t lane, std::size_t i, std::size_t j) {
    std::vector<TaskId>& tasks = plan.lanes[lane].tasks;
    std::swap(tasks[i], tasks[j]);
    number(plan, lane);
    if (plan.tasks[tasks[i]].joint == -1) return;
    std::swap(plan.tasks[tasks[i]].after_previous, plan.tasks[tasks[j]].after_previous);
  }

  void edit_lane(std::int32_t lane) {
    const std::vector<TaskId>& tasks = plan_.lanes[lane].tasks;
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      const bool joint = plan_.tasks[tasks[i]].joint != -1;
      if (joint && i + 1 < tasks.size() && drawn()) {
        add(Edit::swap_joints, {tasks[i], tasks[i + 1]}, {Fault::deadlock}, -1,
            [=](Plan& plan) { exchange(plan, lane, i, i + 1); });
      }
      for (std::size_t j = i + 1; j < tasks.size() && !joint && drawn(); ++j) {
        if (!depends(tasks[j], tasks[i])) continue;
        add(Edit::swap_tasks, {tasks[i], tasks[j]}, {Fault::deadlock}, -1,
            [=](Plan& plan) { exchange(plan, lane, i, j); });
        break;
      }
      if (drawn()) move(lane, tasks[i]);
      if (i == 1 && drawn()) isolate(lane, tasks[i]);
    }
  }

  // To the front of another lane that has something that the task depends on.
  void move(std::int32_t lane, TaskId id) {
    for (std::size_t l = 0; l < plan_.lanes.size(); ++l) {
      const Lane& other = plan_.lanes[l];
      const auto to = static_cast<std::int32_t>(l);
      if (to == lane || other.rank != plan_.lanes[lane].rank || other.engine != plan_.lanes[lane].engine) continue;
      if (std::none_of(other.tasks.begin(), other.tasks.end(), [&](TaskId before) { return depends(id, before); }))
        continue;
      add(Edit::move_task, {id}, {Fault::deadlock}, -1, [=](Plan& plan) {
        std::erase(plan.lanes[lane].tasks, id);
        plan.lanes[to].tasks.insert(plan.lanes[to].tasks.begin(), id);
        number(plan, lane);
        number(plan, to);
      });
      break;
    }
  }

  // To a lane more than the machine has.
  void isolate(std::int32_t lane, TaskId id) {
    const Engine engine = plan_.lanes[lane].engine;
    const int offered = plan_.topology.lanes_of(engine);
    add(Edit::move_task, {id}, {Fault::residency}, -1, [=](Plan& plan) {
      const std::int32_t rank = plan.lanes[lane].rank;
      const auto lanes = std::count_if(plan.lanes.begin(), plan.lanes.end(),
                                       [&](const Lane& l) { return l.rank == rank && l.engine == engine; });
      std::erase(plan.lanes[lane].tasks, id);
      for (std::int64_t l = lanes; l <= offered; ++l) plan.lanes.push_back({rank, engine, {}});
      plan.lanes.back().tasks = {id};
      number(plan, lane);
      number(plan, static_cast<std::int32_t>(plan.lanes.size()) - 1);
    });
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
    if (!used || buffer.shape.empty() || buffer.role == Buffer::Role::constant || !drawn()) return;
    add(
        Edit::shrink_buffer, {}, {}, -1, [id](Plan& plan) { --plan.buffers[id].shape[0]; },
        fmt::format("buffer {}", id));
  }

  void shift(TaskId id, std::size_t w) {
    const Access& write = plan_.tasks[id].writes[w];
    const Shape& shape = plan_.buffers[write.buffer].shape;
    if (write.box.empty() || shape.empty() || write.partition != -1 || !drawn()) return;
    const std::size_t dim = write.box.extent[0] < shape[0] || shape.size() == 1 ? 0 : shape.size() - 1;
    const std::int64_t by = write.box.start[dim] + write.box.extent[dim] < shape[dim] ? 1 : -1;
    add(
        Edit::shift_box, {id}, {Fault::race, Fault::unwritten}, -1,
        [=](Plan& plan) { plan.tasks[id].writes[w].box.start[dim] += by; }, fmt::format("buffer {}", write.buffer));
  }

  const Plan& plan_;
  std::uint64_t every_;
  std::mt19937_64 random_;
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

std::vector<Mutant> mutants(const Plan& plan, std::uint64_t every, std::uint64_t seed) {
  return Mutator(plan, every, seed).all();
}

Plan apply(const Mutant& mutant, const Plan& plan) {
  Plan edited = plan;
  mutant.apply(edited);
  return edited;
}

}  // namespace tileway::testing
