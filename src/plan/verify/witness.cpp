#include "plan/verify/witness.hpp"

#include <algorithm>
#include <array>

namespace tileway::verifier {
namespace {

// Takes every step that can be taken without two events, until both can be taken.
class Replay {
 public:
  Replay(const Sequence& sequence, const Event& unfinished, const Event& target)
      : sequence_(sequence),
        unfinished_(unfinished),
        target_(target),
        done_(sequence.columns() - sequence.ranks(), {0, 0, 0}),
        raised_(sequence.signals()),
        sum_(sequence.signals(), 0),
        waiting_(sequence.signals()),
        run_of_rank_(sequence.ranks(), -1),
        stores_left_(sequence.ranks(), 0),
        caller_step_(sequence.ranks(), 0),
        step_of_(static_cast<std::size_t>(sequence.instances()) * 3, 0) {}

  std::vector<Event> run() {
    for (int rank = 0; rank < sequence_.ranks() && !both_held(); ++rank) begin_runs(rank);
    while (!lanes_.empty() && !both_held()) {
      const auto [run, lane] = lanes_.back();
      lanes_.pop_back();
      advance(run, lane);
    }
    return target_held_ ? needed() : std::vector<Event>();
  }

 private:
  struct Step {
    Event event;
    std::vector<std::size_t> after;  // indices of steps
  };
  struct Place {
    int run;
    std::int32_t lane;
  };

  bool both_held() const { return target_held_ && unfinished_held_; }

  // Whether it is one of the two; then it is not taken, and what it comes after is kept.
  bool hold(const Event& event, const std::vector<std::size_t>& after) {
    if (event != unfinished_ && event != target_) return false;
    (event == target_ ? target_held_ : unfinished_held_) = true;
    held_after_.insert(held_after_.end(), after.begin(), after.end());
    return true;
  }

  // The rank's callers, as far as its runs are over.
  void begin_runs(int rank) {
    int& run = run_of_rank_[rank];
    while (stores_left_[rank] == 0 && run < sequence_.runs()) {
      ++run;
      const Event event{{run, -1, rank}, Stage::load};
      std::vector<std::size_t> after;
      if (run > 0 && rank < sequence_.plan(run - 1).ranks()) {
        for (std::int32_t lane : sequence_.lanes_of(run - 1, rank)) {
          for (TaskId task : sequence_.plan(run - 1).lanes[lane].tasks)
            after.push_back(step_of_[key(sequence_.instance(run - 1, task), Stage::store)]);
        }
      }
      if (run > 0) after.push_back(caller_step_[rank]);
      if (hold(event, after)) return;
      caller_step_[rank] = steps_.size();
      take(event, std::move(after));
      if (run == sequence_.runs() || rank >= sequence_.plan(run).ranks()) continue;
      for (std::int32_t lane : sequence_.lanes_of(run, rank)) {
        done_[sequence_.lane_column(run, lane)] = {0, 0, 0};
        stores_left_[rank] += static_cast<int>(sequence_.plan(run).lanes[lane].tasks.size());
        lanes_.push_back({run, lane});
      }
    }
  }

  // A counter goes on from run to run: that of the plan's first.
  int counter(int run, SignalId signal) const {
    return sequence_.signal(sequence_.first_run(sequence_.plan_number(run)), signal);
  }

  static std::size_t key(int instance, Stage stage) {
    return static_cast<std::size_t>(instance) * 3 + static_cast<std::size_t>(stage);
  }

  void advance(int run, std::int32_t lane) {
    bool again = true;
    while (again) {
      again = false;
      for (std::size_t stage = 0; stage < 3; ++stage) again = step(run, lane, stage) || again;
    }
  }

  // The next task's stage, if it can.
  bool step(int run, std::int32_t lane, std::size_t stage) {
    const Plan& plan = sequence_.plan(run);
    if (run_of_rank_[plan.lanes[lane].rank] != run) return false;  // the lane's last task may have ended the run
    const std::vector<TaskId>& tasks = plan.lanes[lane].tasks;
    std::array<std::size_t, 3>& done = done_[sequence_.lane_column(run, lane)];
    const std::size_t next = done[stage];
    if (next == tasks.size() || (stage > 0 && done[stage - 1] <= next)) return false;
    const Task& task = plan.tasks[tasks[next]];
    if (stage == 0 && task.after_previous && done[2] < next) return false;
    const int instance = sequence_.instance(run, tasks[next]);
    std::vector<std::size_t> after{caller_step_[task.rank]};
    for (const Wait& wait : task.waits) {
      if (wait.stage != static_cast<Stage>(stage)) continue;
      const int signal = counter(run, wait.signal);
      const std::uint64_t before = static_cast<std::uint64_t>(sequence_.epoch(run)) * plan.signals[wait.signal].total;
      if (sum_[signal] < before + wait.value) {
        waiting_[signal].push_back({run, lane});
        return false;
      }
      after.insert(after.end(), raised_[signal].begin(), raised_[signal].end());
    }
    if (stage == 2 && task.joint != -1 && !all_have_begun(run, task.joint, after)) return false;
    const Event event{{run, tasks[next], task.rank}, static_cast<Stage>(stage)};
    if (next > 0) after.push_back(step_of_[key(sequence_.instance(run, tasks[next - 1]), event.stage)]);
    if (next > 0 && stage == 0 && task.after_previous)
      after.push_back(step_of_[key(sequence_.instance(run, tasks[next - 1]), Stage::store)]);
    if (stage > 0) after.push_back(step_of_[key(instance, static_cast<Stage>(stage - 1))]);
    if (hold(event, after)) return false;
    ++done[stage];
    take(event, std::move(after));
    if (stage == 0 && task.joint != -1) {  // the other members may have waited for it
      for (const Task& member : plan.tasks) {
        if (member.joint == task.joint) lanes_.push_back({run, member.lane});
      }
    }
    if (stage == 2) raise(run, task);
    return true;
  }

  // None ends before all members have begun: whether they have, and by which steps.
  bool all_have_begun(int run, std::int32_t joint, std::vector<std::size_t>& after) const {
    const Plan& plan = sequence_.plan(run);
    for (std::size_t t = 0; t < plan.tasks.size(); ++t) {
      const Task& member = plan.tasks[t];
      if (member.joint != joint) continue;
      const int current = run_of_rank_[member.rank];
      const auto index = static_cast<std::size_t>(member.index);
      if (current < run || (current == run && done_[sequence_.lane_column(run, member.lane)][0] <= index)) return false;
      after.push_back(step_of_[key(sequence_.instance(run, static_cast<TaskId>(t)), Stage::load)]);
    }
    return true;
  }

  void raise(int run, const Task& task) {
    for (const Notify& notify : task.notifies) {
      const int signal = counter(run, notify.signal);
      sum_[signal] += notify.amount;
      raised_[signal].push_back(steps_.size() - 1);
      lanes_.insert(lanes_.end(), waiting_[signal].begin(), waiting_[signal].end());
      waiting_[signal].clear();
    }
    if (--stores_left_[task.rank] == 0) begin_runs(task.rank);
  }

  void take(const Event& event, std::vector<std::size_t> after) {
    if (event.instance.task != -1) {
      step_of_[key(sequence_.instance(event.instance.run, event.instance.task), event.stage)] = steps_.size();
    }
    steps_.push_back({event, std::move(after)});
  }

  std::vector<Event> needed() const {
    std::vector<bool> mark(steps_.size(), false);
    for (std::size_t before : held_after_) mark[before] = true;
    std::vector<Event> events{target_};
    for (std::size_t i = steps_.size(); i-- > 0;) {
      if (!mark[i]) continue;
      events.push_back(steps_[i].event);
      for (std::size_t before : steps_[i].after) mark[before] = true;
    }
    std::reverse(events.begin(), events.end());
    return events;
  }

  const Sequence& sequence_;
  Event unfinished_;
  Event target_;
  std::vector<std::array<std::size_t, 3>> done_;  // by lane column: tasks whose stage is over, in the rank's run
  std::vector<std::vector<std::size_t>> raised_;  // by counter: steps
  std::vector<std::uint64_t> sum_;                // by counter
  std::vector<std::vector<Place>> waiting_;       // by counter
  std::vector<int> run_of_rank_;
  std::vector<int> stores_left_;
  std::vector<std::size_t> caller_step_;  // by rank: its last
  std::vector<std::size_t> step_of_;      // by instance and stage
  std::vector<Step> steps_;
  std::vector<Place> lanes_;
  bool target_held_ = false;
  bool unfinished_held_ = false;
  std::vector<std::size_t> held_after_;  // steps before the two
};

}  // namespace

std::vector<Event> witness(const Sequence& sequence, const Event& unfinished, const Event& target) {
  return Replay(sequence, unfinished, target).run();
}

}  // namespace tileway::verifier
