#include "exec/host/explore/stepper.hpp"

#include <algorithm>

#include "plan/joint.hpp"

namespace tileway::host {

using verifier::Sequence;

Stepper::Stepper(const Sequence& sequence)
    : sequence_(sequence),
      plan_(sequence.plan(0)),
      joints_(joints_of(plan_)),
      done_(plan_.lanes.size(), {0, 0, 0}),
      open_(plan_.lanes.size(), {false, false, false}),
      counters_(plan_.signals.size(), 0),
      blocked_(plan_.signals.size()),
      run_of_rank_(sequence.ranks(), -1),
      left_in_run_(sequence.ranks(), 0),
      total_(static_cast<std::size_t>(sequence.instances()) * 3 +
             static_cast<std::size_t>(sequence.ranks()) * (sequence.runs() + 1)) {}

std::vector<Step> Stepper::begin() {
  for (int rank = 0; rank < sequence_.ranks(); ++rank) enable({{0, -1, rank}, Stage::load}, -1);
  return std::move(fresh_);
}

void Stepper::enable(const Event& event, int column) {
  enabled_.push_back({event, column, enabled_.size()});
  fresh_.push_back(enabled_.back());
}

// After a caller's turn the rank's lanes begin, and where there is nothing to do, the next caller may.
void Stepper::begin_run(int rank) {
  const int run = ++run_of_rank_[rank];
  if (run == sequence_.runs()) return;
  for (std::int32_t lane : sequence_.lanes_of(run, rank)) {
    done_[lane] = {0, 0, 0};
    left_in_run_[rank] += plan_.lanes[lane].tasks.size();
  }
  if (left_in_run_[rank] == 0) enable({{run + 1, -1, rank}, Stage::load}, -1);
  for (std::int32_t lane : sequence_.lanes_of(run, rank)) look(run, lane);
}

void Stepper::look(int run, std::int32_t lane) {
  if (run_of_rank_[plan_.lanes[lane].rank] != run) return;
  for (std::size_t stage = 0; stage < 3; ++stage) look_at_stage(run, lane, stage);
}

bool Stepper::has_been_given(int run, TaskId id) const {
  const Task& task = plan_.tasks[id];
  const std::vector<TaskId>& members = joints_[task.joint];
  const auto self = static_cast<std::size_t>(std::find(members.begin(), members.end(), id) - members.begin());
  for (std::size_t w = 0; w < task.writes.size(); ++w) {
    if (task.writes[w].box.empty()) continue;
    for (const Given& given : sources_of(plan_.bodies[task.body], members.size(), self, w)) {
      if (!over(run, members[given.member], Stage::load)) return false;
    }
  }
  return true;
}

void Stepper::look_at_stage(int run, std::int32_t lane, std::size_t stage) {
  const std::size_t next = done_[lane][stage];
  if (open_[lane][stage] || next == plan_.lanes[lane].tasks.size()) return;
  if (stage > 0 && done_[lane][stage - 1] <= next) return;
  const TaskId id = plan_.lanes[lane].tasks[next];
  const Task& task = plan_.tasks[id];
  if (stage == 0 && task.after_previous && done_[lane][2] < next) return;
  for (const Wait& wait : task.waits) {
    if (wait.stage != static_cast<Stage>(stage)) continue;
    const std::uint64_t before = static_cast<std::uint64_t>(run) * plan_.signals[wait.signal].total;
    if (counters_[wait.signal] >= before + wait.value) continue;
    blocked_[wait.signal].push_back({run, lane});
    return;
  }
  if (stage == 2 && task.joint != -1 && !has_been_given(run, id)) return;
  open_[lane][stage] = true;
  enable({{run, id, task.rank}, static_cast<Stage>(stage)}, lane);
}

bool Stepper::over(int run, TaskId id, Stage stage) const {
  const Task& task = plan_.tasks[id];
  if (run_of_rank_[task.rank] != run) return run_of_rank_[task.rank] > run;
  return done_[task.lane][static_cast<std::size_t>(stage)] > static_cast<std::size_t>(task.index);
}

std::vector<Step> Stepper::take(Step step) {
  fresh_.clear();
  ++taken_;
  enabled_[step.place] = enabled_.back();
  enabled_[step.place].place = step.place;
  enabled_.pop_back();
  const auto& [run, id, rank] = step.event.instance;
  if (id == -1) {
    begin_run(rank);
    return std::move(fresh_);
  }
  const Task& task = plan_.tasks[id];
  const auto stage = static_cast<std::size_t>(step.event.stage);
  ++done_[task.lane][stage];
  open_[task.lane][stage] = false;
  look(run, task.lane);
  if (stage == 0 && task.joint != -1) {
    for (TaskId member : joints_[task.joint]) look(run, plan_.tasks[member].lane);
  }
  if (stage < 2) return std::move(fresh_);
  for (const Notify& notify : task.notifies) {
    counters_[notify.signal] += notify.amount;
    std::vector<Place> places;
    places.swap(blocked_[notify.signal]);
    for (const Place& place : places) look(place.run, place.lane);
  }
  if (--left_in_run_[rank] == 0) enable({{run + 1, -1, rank}, Stage::load}, -1);
  return std::move(fresh_);
}

verifier::Progress Stepper::standing() const {
  verifier::Progress progress;
  progress.run_of_rank = run_of_rank_;
  progress.standing.resize(done_.size(), -1);
  for (int run = 0; run < sequence_.runs(); ++run) {
    for (std::size_t t = 0; t < plan_.tasks.size(); ++t) {
      const Task& task = plan_.tasks[t];
      progress.ended.push_back(over(run, static_cast<TaskId>(t), Stage::store));
      if (run_of_rank_[task.rank] == run && done_[task.lane][2] == static_cast<std::size_t>(task.index))
        progress.standing[task.lane] = sequence_.instance(run, static_cast<TaskId>(t));
    }
  }
  return progress;
}

}  // namespace tileway::host
