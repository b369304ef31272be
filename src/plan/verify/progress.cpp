#include "plan/verify/progress.hpp"

#include <algorithm>

namespace tileway::verifier {
namespace {

class Greedy {
 public:
  Greedy(const Sequence& sequence, int frozen)
      : sequence_(sequence), frozen_(frozen), raised_(sequence.signals(), 0), blocked_(sequence.signals()) {
    result_.ended.resize(sequence.instances(), false);
    result_.run_of_rank.resize(sequence.ranks(), -1);
    result_.standing.resize(sequence.columns() - sequence.ranks(), -1);
    lanes_left_.resize(sequence.ranks(), 0);
    for (int run = 0; run < sequence.runs(); ++run) {
      begun_.emplace_back();
      for (const Task& task : sequence.plan(run).tasks) {
        if (task.joint >= static_cast<std::int32_t>(begun_.back().size())) begun_.back().resize(task.joint + 1);
      }
    }
  }

  Progress run() {
    for (int rank = 0; rank < sequence_.ranks(); ++rank) begin_next_run(rank);
    while (!ready_.empty() || !deferred_.empty()) {
      if (ready_.empty()) choose_deferred();
      const int instance = ready_.back();
      ready_.pop_back();
      start(instance);
    }
    result_.complete = result_.order.size() == result_.ended.size();
    return std::move(result_);
  }

 private:
  void begin_next_run(int rank) {
    while (lanes_left_[rank] == 0 && ++result_.run_of_rank[rank] < sequence_.runs()) {
      const int run = result_.run_of_rank[rank];
      if (rank >= sequence_.plan(run).ranks()) continue;
      for (std::int32_t lane : sequence_.lanes_of(run, rank)) {
        const Lane& tasks = sequence_.plan(run).lanes[lane];
        if (tasks.tasks.empty()) continue;
        ++lanes_left_[rank];
        arrive(sequence_.instance(run, tasks.tasks[0]));
      }
    }
  }

  // The lane has come to this task.
  void arrive(int instance) {
    const int run = sequence_.run_of(instance);
    const Task& task = sequence_.task(instance);
    result_.standing[sequence_.lane_column(run, task.lane)] = instance;
    look(instance);
  }

  // One whose signals have all been raised in full, if there is one: about it nothing is left to guess.
  void choose_deferred() {
    const auto full = [&](int instance) {
      const int run = sequence_.run_of(instance);
      const std::vector<Wait>& waits = sequence_.task(instance).waits;
      return std::all_of(waits.begin(), waits.end(), [&](const Wait& wait) {
        return raised_[sequence_.signal(run, wait.signal)] == sequence_.plan(run).signals[wait.signal].total;
      });
    };
    auto chosen = std::find_if(deferred_.begin(), deferred_.end(), full);
    if (chosen == deferred_.end()) --chosen;
    ready_.push_back(*chosen);
    deferred_.erase(chosen);
  }

  // A signal of a run that has to be raised further before the wait is looked at again, or -1. The counter goes on from
  // run to run, so the runs before count too; they come to their end whatever this one does, and are let come first.
  int first_short(int run, const Wait& wait) const {
    for (int earlier = 0; earlier < run; ++earlier) {
      if (sequence_.plan_number(earlier) != sequence_.plan_number(run)) continue;
      const int signal = sequence_.signal(earlier, wait.signal);
      if (raised_[signal] < sequence_.plan(run).signals[wait.signal].total) return signal;
    }
    const int signal = sequence_.signal(run, wait.signal);
    return raised_[signal] < wait.value ? signal : -1;
  }

  // Starts it, or leaves it with the first signal that it misses.
  void look(int instance) {
    const int run = sequence_.run_of(instance);
    const Task& task = sequence_.task(instance);
    bool partial = false;
    for (const Wait& wait : task.waits) {
      const int short_of = first_short(run, wait);
      if (short_of != -1) {
        blocked_[short_of].push_back(instance);
        return;
      }
      partial = partial || wait.value < sequence_.plan(run).signals[wait.signal].total;
    }
    (partial ? deferred_ : ready_).push_back(instance);
  }

  void start(int instance) {
    if (instance == frozen_) return;
    const Task& task = sequence_.task(instance);
    if (task.joint == -1) {
      end(instance);
      return;
    }
    const int run = sequence_.run_of(instance);
    std::vector<int>& members = begun_[run][task.joint];
    members.push_back(instance);
    if (static_cast<int>(members.size()) < sequence_.joint_members(run, task.joint)) return;
    for (int member : members) end(member);
  }

  void end(int instance) {
    const int run = sequence_.run_of(instance);
    const Plan& plan = sequence_.plan(run);
    const Task& task = sequence_.task(instance);
    result_.ended[instance] = true;
    result_.order.push_back(instance);
    for (const Notify& notify : task.notifies) {
      const int signal = sequence_.signal(run, notify.signal);
      raised_[signal] += notify.amount;
      std::vector<int> waiting;
      waiting.swap(blocked_[signal]);
      for (int waiter : waiting) look(waiter);
    }
    const Lane& lane = plan.lanes[task.lane];
    if (task.index + 1 < static_cast<std::int32_t>(lane.tasks.size())) {
      arrive(sequence_.instance(run, lane.tasks[task.index + 1]));
      return;
    }
    result_.standing[sequence_.lane_column(run, task.lane)] = -1;
    if (--lanes_left_[task.rank] == 0) begin_next_run(task.rank);
  }

  const Sequence& sequence_;
  int frozen_;
  Progress result_;
  std::vector<std::uint64_t> raised_;                 // by signal of a run
  std::vector<std::vector<int>> blocked_;             // by signal of a run
  std::vector<std::vector<std::vector<int>>> begun_;  // by run and joint
  std::vector<int> lanes_left_;                       // by rank
  std::vector<int> ready_;
  std::vector<int> deferred_;
};

}  // namespace

Progress progress(const Sequence& sequence, int frozen) { return Greedy(sequence, frozen).run(); }

}  // namespace tileway::verifier
