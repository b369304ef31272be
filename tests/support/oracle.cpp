#include "support/oracle.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

namespace tileway::testing {
namespace {

using Mode = Access::Mode;

class Explorer {
 public:
  Explorer(const Plan& plan, int runs, std::size_t states_at_most)
      : plan_(plan), runs_(runs), states_at_most_(states_at_most) {
    has_stage_.assign(plan.lanes.size(), {true, false, true});
    for (const Task& task : plan.tasks) {
      bool& epilogue = has_stage_[task.lane][1];
      for (const Wait& wait : task.waits) epilogue = epilogue || wait.stage == Stage::epilogue;
      for (const auto* list : {&task.reads, &task.writes}) {
        for (const Access& access : *list) epilogue = epilogue || access.stage == Stage::epilogue;
      }
    }
    for (std::size_t t = 0; t < plan.tasks.size(); ++t) {
      if (plan.tasks[t].joint != -1) joints_[plan.tasks[t].joint].push_back(static_cast<TaskId>(t));
    }
    for (auto& [joint, members] : joints_) {
      std::sort(members.begin(), members.end(),
                [&](TaskId a, TaskId b) { return plan.tasks[a].rank < plan.tasks[b].rank; });
    }
  }

  Oracle explore() {
    push(beginning());
    while (!open_.empty()) {
      const State state = std::move(open_.back());
      open_.pop_back();
      if (++oracle_.states > states_at_most_) {
        oracle_.finished = false;
        break;
      }
      visit(state);
    }
    return oracle_;
  }

  Oracle explore_without_each() {
    const Set everything = reach(nullptr);
    std::vector<Step> steps;
    for (const auto& [key, step] : known_) steps.push_back(step);
    if (everything.size() != event_count()) {
      oracle_.faults.insert(Fault::deadlock);
      return oracle_;
    }
    std::map<Key, Set> without;
    for (const Step& step : steps) without[key_of(step)] = reach(&step);
    oracle_.states = without.size();
    // Whether the second can come although the first has not.
    const auto can_come = [&](const Step& first, const Step& second) {
      return without.at(key_of(first)).contains(key_of(second));
    };
    for (std::size_t i = 0; i < steps.size(); ++i) {
      for (std::size_t j = 0; j < steps.size(); ++j) {
        if (i == j) continue;
        const Step& a = steps[i];
        const Step& b = steps[j];
        if (can_come(a, b)) look_at_early(a, b);
        if (i < j && (a.task != b.task || a.task == -1) && conflicting(a, b) && can_come(a, b) && can_come(b, a))
          oracle_.faults.insert(Fault::race);
      }
    }
    for (const Step& step : steps) {
      for (const Touch& touch : touches(step)) {
        if (touch.mode == Mode::write || plan_.buffers[touch.buffer].role != Buffer::Role::scratch) continue;
        const auto surely_over = [&](TaskId task, int run, int stage) {
          return !without.at({run, task, 0, stage}).contains(key_of(step));
        };
        if (!all_written(touch, step.task, surely_over)) oracle_.faults.insert(Fault::unwritten);
      }
    }
    return oracle_;
  }

 private:
  struct State {
    std::vector<std::int8_t> run;                   // by rank
    std::vector<std::array<std::uint8_t, 3>> done;  // by lane and stage, in the rank's run
  };
  // A stage of a task, or a caller's turn (lane -1).
  struct Step {
    int rank;
    int run;
    std::int32_t lane;
    int stage;
    TaskId task;
  };
  struct Touch {
    BufferId buffer;
    int slot;
    int run;
    const Access* access;  // none: the caller's, of everything
    Mode mode;
  };

  using Key = std::array<int, 4>;
  using Set = std::set<Key>;
  static Key key_of(const Step& step) { return {step.run, step.task, step.task == -1 ? step.rank : 0, step.stage}; }

  std::size_t event_count() const {
    std::size_t count = static_cast<std::size_t>(plan_.ranks()) * (runs_ + 1);
    for (const Task& task : plan_.tasks) count += static_cast<std::size_t>(runs_) * (has_stage_[task.lane][1] ? 3 : 2);
    return count;
  }

  State beginning() const {
    State start;
    start.run.assign(plan_.ranks(), -1);
    start.done.assign(plan_.lanes.size(), {0, 0, 0});
    for (std::size_t l = 0; l < plan_.lanes.size(); ++l)
      start.done[l].fill(static_cast<std::uint8_t>(plan_.lanes[l].tasks.size()));
    return start;
  }

  // All that can come, in any order, as long as one step is not taken; that step itself if it can be.
  Set reach(const Step* never) {
    Set reached;
    State state = beginning();
    while (true) {
      bool moved = false;
      for (const Step& step : enabled(state)) {
        reached.insert(key_of(step));
        known_.emplace(key_of(step), step);
        if (never && key_of(step) == key_of(*never)) continue;
        state = after(std::move(state), step);
        moved = true;
        break;
      }
      if (!moved) return reached;
    }
  }

  bool conflicting(const Step& a, const Step& b) const {
    for (const Touch& x : touches(a)) {
      for (const Touch& y : touches(b)) {
        if (conflict(x, y)) return true;
      }
    }
    return false;
  }

  // `late` need not have come when `early` does.
  void look_at_early(const Step& late, const Step& early) {
    for (const Touch& read : touches(early)) {
      if (early.task != -1 || read.mode != Mode::read) continue;
      for (const Touch& sum : touches(late)) {
        if (sum.mode == Mode::accumulate && sum.run == read.run && sum.buffer == read.buffer)
          oracle_.faults.insert(Fault::unwritten);
      }
    }
    if (late.task == -1 || early.task == -1 || early.stage != 2 || early.run != late.run + 1) return;
    for (const Notify& notify : plan_.tasks[early.task].notifies) {
      for (const Wait& wait : plan_.tasks[late.task].waits) {
        if (wait.signal == notify.signal && raised_by_several(wait.signal) &&
            static_cast<int>(wait.stage) == late.stage)
          oracle_.faults.insert(Fault::run_ahead);
      }
    }
  }

  void push(State state) {
    std::string key;
    for (std::int8_t run : state.run) key.push_back(static_cast<char>(run));
    for (const auto& lane : state.done) {
      for (std::uint8_t count : lane) key.push_back(static_cast<char>(count));
    }
    if (seen_.insert(std::move(key)).second) open_.push_back(std::move(state));
  }

  bool raised_by_several(SignalId signal) const {
    std::set<std::int32_t> ranks;
    for (const Task& task : plan_.tasks) {
      for (const Notify& notify : task.notifies) {
        if (notify.signal == signal) ranks.insert(task.rank);
      }
    }
    return ranks.size() > 1;
  }

  std::size_t length(std::int32_t lane) const { return plan_.lanes[lane].tasks.size(); }

  bool stage_over(const State& state, TaskId id, int run, int stage) const {
    const Task& task = plan_.tasks[id];
    if (state.run[task.rank] != run) return state.run[task.rank] > run;
    return state.done[task.lane][stage] > task.index;
  }

  std::uint64_t counter(const State& state, SignalId signal) const {
    std::uint64_t sum = 0;
    for (std::size_t t = 0; t < plan_.tasks.size(); ++t) {
      const Task& task = plan_.tasks[t];
      for (const Notify& notify : task.notifies) {
        if (notify.signal != signal || state.run[task.rank] < 0) continue;
        const bool this_run = state.done[task.lane][2] > task.index;
        sum += notify.amount * static_cast<std::uint64_t>(state.run[task.rank] + this_run);
      }
    }
    return sum;
  }

  bool waits_hold(const State& state, const Task& task, int stage) const {
    return std::all_of(task.waits.begin(), task.waits.end(), [&](const Wait& wait) {
      if (static_cast<int>(wait.stage) != stage) return true;
      const std::uint64_t before = static_cast<std::uint64_t>(state.run[task.rank]) * plan_.signals[wait.signal].total;
      return counter(state, wait.signal) >= before + wait.value;
    });
  }

  // Whether those members of a collective have begun without whose data this one cannot end.
  bool joined(const State& state, const Task& task, int run) const {
    if (task.joint == -1) return true;
    const std::vector<TaskId>& members = joints_.at(task.joint);
    const bool takes =
        std::any_of(task.writes.begin(), task.writes.end(), [](const Access& w) { return !w.box.empty(); });
    const bool exchanges = plan_.bodies[task.body].kind == Body::Kind::exchange;
    for (std::size_t m = 0; m < members.size(); ++m) {
      const bool needed = exchanges ? !task.writes[m].box.empty() : takes;
      if (needed && !stage_over(state, members[m], run, 0)) return false;
    }
    return true;
  }

  std::vector<Step> enabled(const State& state) const {
    std::vector<Step> steps;
    for (int rank = 0; rank < plan_.ranks(); ++rank) {
      if (state.run[rank] == runs_) continue;
      bool over = true;
      for (std::size_t l = 0; l < plan_.lanes.size(); ++l) {
        if (plan_.lanes[l].rank == rank) over = over && state.done[l][2] == length(static_cast<std::int32_t>(l));
      }
      if (over) steps.push_back({rank, state.run[rank] + 1, -1, 0, -1});
    }
    for (std::size_t l = 0; l < plan_.lanes.size(); ++l) {
      const int run = state.run[plan_.lanes[l].rank];
      if (run < 0 || run == runs_) continue;
      for (int stage = 0; stage < 3; ++stage) {
        const std::size_t next = state.done[l][stage];
        if (next == plan_.lanes[l].tasks.size() || (stage > 0 && state.done[l][stage - 1] <= next)) continue;
        const TaskId id = plan_.lanes[l].tasks[next];
        const Task& task = plan_.tasks[id];
        if (stage == 0 && task.after_previous && state.done[l][2] < next) continue;
        if (!waits_hold(state, task, stage) || (stage == 2 && !joined(state, task, run))) continue;
        steps.push_back({task.rank, run, static_cast<std::int32_t>(l), stage, id});
      }
    }
    return steps;
  }

  std::vector<Touch> touches(const Step& step) const {
    std::vector<Touch> all;
    const auto slot = [&](BufferId buffer, int run) { return run % plan_.buffers[buffer].slots; };
    if (step.task == -1) {
      for (const Plan::Binding& input : plan_.inputs) {
        if (input.rank == step.rank && step.run < runs_)
          all.push_back({input.buffer, slot(input.buffer, step.run), step.run, nullptr, Mode::write});
      }
      for (const Plan::Binding& output : plan_.outputs) {
        if (output.rank == step.rank && step.run > 0)
          all.push_back({output.buffer, slot(output.buffer, step.run - 1), step.run - 1, nullptr, Mode::read});
      }
      return all;
    }
    for (const auto* list : {&plan_.tasks[step.task].reads, &plan_.tasks[step.task].writes}) {
      for (const Access& access : *list) {
        if (static_cast<int>(access.stage) == step.stage)
          all.push_back({access.buffer, slot(access.buffer, step.run), step.run, &access, access.mode});
      }
    }
    return all;
  }

  Box box_of(const Touch& touch) const {
    return touch.access ? touch.access->box : Box::whole(plan_.buffers[touch.buffer].shape);
  }

  bool conflict(const Touch& a, const Touch& b) const {
    if (a.buffer != b.buffer || a.slot != b.slot || (a.mode == Mode::read && b.mode == Mode::read)) return false;
    if (a.access && b.access) {
      if (a.mode == Mode::accumulate && b.mode == Mode::accumulate && a.access->op == b.access->op) return false;
      if (a.access->partition != -1 && a.access->partition == b.access->partition && a.access->slice != b.access->slice)
        return false;
    }
    return overlaps(box_of(a), box_of(b));
  }

  // Every element that a touch needs, one by one.
  template <typename Over>
  bool all_written(const Touch& touch, TaskId reader, const Over& is_over) const {
    const Box box = box_of(touch);
    std::map<std::int32_t, int> slices_left;
    for (std::size_t p = 0; p < plan_.partitions.size(); ++p) slices_left[static_cast<std::int32_t>(p)] = 0;
    std::vector<const Access*> written;
    for (std::size_t t = 0; t < plan_.tasks.size(); ++t) {
      for (const Access& write : plan_.tasks[t].writes) {
        if (write.buffer != touch.buffer || write.mode != Mode::write || static_cast<TaskId>(t) == reader) continue;
        const bool over = is_over(static_cast<TaskId>(t), touch.run, static_cast<int>(write.stage));
        if (write.partition != -1 && !over) ++slices_left[write.partition];
        if (over) written.push_back(&write);
      }
    }
    Dims at = box.start;
    for (std::int64_t i = 0; i < box.volume(); ++i) {
      std::int64_t rest = i;
      for (std::size_t d = at.size(); d-- > 0;) {
        at[d] = box.start[d] + rest % box.extent[d];
        rest /= box.extent[d];
      }
      const Box element{at, Dims::filled(at.size(), 1)};
      const bool found = std::any_of(written.begin(), written.end(), [&](const Access* write) {
        return (write->partition == -1 || slices_left[write->partition] == 0) && overlaps(write->box, element);
      });
      if (!found) return false;
    }
    return true;
  }

  void look_at(const State& state, const Step& step) {
    for (const Touch& touch : touches(step)) {
      const bool holds_nothing = plan_.buffers[touch.buffer].role == Buffer::Role::scratch;
      const auto is_over = [&](TaskId task, int run, int stage) { return stage_over(state, task, run, stage); };
      if (touch.mode != Mode::write && holds_nothing && !all_written(touch, step.task, is_over))
        oracle_.faults.insert(Fault::unwritten);
      if (step.task != -1 || touch.mode != Mode::read) continue;
      for (std::size_t t = 0; t < plan_.tasks.size(); ++t) {
        for (const Access& write : plan_.tasks[t].writes) {
          if (write.buffer == touch.buffer && write.mode == Mode::accumulate &&
              !stage_over(state, static_cast<TaskId>(t), touch.run, static_cast<int>(write.stage)))
            oracle_.faults.insert(Fault::unwritten);
        }
      }
    }
    if (step.task == -1 || step.stage != 2 || step.run == 0) return;
    for (const Notify& notify : plan_.tasks[step.task].notifies) {
      for (std::size_t t = 0; t < plan_.tasks.size(); ++t) {
        for (const Wait& wait : plan_.tasks[t].waits) {
          if (wait.signal == notify.signal && raised_by_several(wait.signal) &&
              !stage_over(state, static_cast<TaskId>(t), step.run - 1, static_cast<int>(wait.stage)))
            oracle_.faults.insert(Fault::run_ahead);
        }
      }
    }
  }

  void visit(const State& state) {
    const std::vector<Step> steps = enabled(state);
    const bool over = std::all_of(state.run.begin(), state.run.end(), [&](std::int8_t run) { return run == runs_; });
    if (steps.empty() && !over) oracle_.faults.insert(Fault::deadlock);
    for (std::size_t i = 0; i < steps.size(); ++i) {
      look_at(state, steps[i]);
      for (std::size_t j = i + 1; j < steps.size(); ++j) {
        if (steps[i].task == steps[j].task && steps[i].task != -1) continue;
        for (const Touch& a : touches(steps[i])) {
          for (const Touch& b : touches(steps[j])) {
            if (conflict(a, b)) oracle_.faults.insert(Fault::race);
          }
        }
      }
    }
    for (const Step& step : steps) push(after(state, step));
  }

  State after(State next, const Step& step) const {
    if (step.task == -1) {
      next.run[step.rank] = static_cast<std::int8_t>(step.run);
      for (std::size_t l = 0; l < plan_.lanes.size(); ++l) {
        if (plan_.lanes[l].rank == step.rank) next.done[l] = {0, 0, 0};
      }
      return next;
    }
    ++next.done[step.lane][step.stage];
    if (step.stage == 0 && !has_stage_[step.lane][1]) ++next.done[step.lane][1];
    return next;
  }

  const Plan& plan_;
  int runs_;
  std::size_t states_at_most_;
  std::vector<std::array<bool, 3>> has_stage_;  // by lane
  std::map<std::int32_t, std::vector<TaskId>> joints_;
  std::vector<State> open_;
  std::map<Key, Step> known_;
  std::unordered_set<std::string> seen_;
  Oracle oracle_;
};

}  // namespace

Oracle explore_every_order(const Plan& plan, int runs, std::size_t states_at_most) {
  return Explorer(plan, runs, states_at_most).explore();
}

Oracle explore_without_each_step(const Plan& plan, int runs) { return Explorer(plan, runs, 0).explore_without_each(); }

}  // namespace tileway::testing
