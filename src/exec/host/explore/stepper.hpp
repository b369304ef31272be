// The state of an exploration: how far every lane is, and which steps can be taken.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "plan/verify/progress.hpp"
#include "plan/verify/sequence.hpp"

namespace tileway::host {

struct Step {
  Event event;
  int column = -1;        // of its lane; -1: a caller's
  std::size_t place = 0;  // in Stepper::enabled()
};

class Stepper {
 public:
  // A sequence of runs of one plan.
  explicit Stepper(const verifier::Sequence& sequence);

  // The steps that can be taken at the beginning: every rank's first caller.
  std::vector<Step> begin();
  // Steps that can be taken now.
  const std::vector<Step>& enabled() const { return enabled_; }
  // Takes one of them; returns those that can be taken because of it.
  std::vector<Step> take(Step step);
  bool finished() const { return taken_ == total_; }
  std::size_t taken() const { return taken_; }
  // Whether that stage of the task is over.
  bool over(int run, TaskId task, Stage stage) const;
  // How far everything is, for the report of a deadlock.
  verifier::Progress standing() const;

 private:
  struct Place {
    int run;
    std::int32_t lane;
  };
  void enable(const Event& event, int column);
  void look(int run, std::int32_t lane);
  void look_at_stage(int run, std::int32_t lane, std::size_t stage);
  void begin_run(int rank);
  // Whether those members of its joint have begun that a task's writes are made from.
  bool has_been_given(int run, TaskId id) const;

  const verifier::Sequence& sequence_;
  const Plan& plan_;
  std::vector<std::vector<TaskId>> joints_;
  std::vector<Step> enabled_;
  std::vector<Step> fresh_;
  std::vector<std::array<std::size_t, 3>> done_;  // by lane column and stage, in the rank's run
  std::vector<std::array<bool, 3>> open_;         // by lane column and stage: its next step is enabled
  std::vector<std::uint64_t> counters_;           // by signal: as in memory, over all runs
  std::vector<std::vector<Place>> blocked_;       // by signal
  std::vector<int> run_of_rank_;
  std::vector<std::size_t> left_in_run_;  // by rank: tasks that have not ended
  std::size_t taken_ = 0;
  std::size_t total_ = 0;
};

}  // namespace tileway::host
