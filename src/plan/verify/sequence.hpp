// A sequence of runs, and numbers for everything in it.
#pragma once

#include <cstdint>
#include <vector>

#include "tileway/plan.hpp"
#include "tileway/verify.hpp"

namespace tileway::verifier {

// Runs of plans of one group, one after the other on every rank; ranks may be in different runs. The plans must outlive
// it.
class Sequence {
 public:
  explicit Sequence(const std::vector<const Plan*>& runs);

  int ranks() const { return ranks_; }
  int runs() const { return static_cast<int>(runs_.size()); }
  const Plan& plan(int run) const { return *runs_[run].plan; }
  int plan_number(int run) const { return runs_[run].number; }
  int first_run(int plan_number) const;
  // How often the plan has run before.
  int epoch(int run) const { return runs_[run].epoch; }

  // Instances of tasks are numbered run by run.
  int instances() const { return instances_; }
  int instance(int run, TaskId task) const { return runs_[run].first_instance + task; }
  int run_of(int instance) const;
  const Task& task(int instance) const;
  Instance describe(int instance) const;

  // A column for each lane of each plan: how many of its tasks have ended; then one for each rank: how many callers
  // have had their turn.
  int columns() const { return columns_; }
  int lane_column(int run, std::int32_t lane) const { return plans_[runs_[run].number].first_lane + lane; }
  int caller_column(int rank) const { return columns_ - ranks_ + rank; }
  // The count in its lane's column once the instance has ended.
  std::uint32_t count_at_end(int instance) const;
  std::uint32_t lane_count_at_end(int run, std::int32_t lane) const;

  int signals() const { return signals_; }
  int signal(int run, SignalId signal) const { return runs_[run].first_signal + signal; }

  // Lanes of a rank in a plan.
  const std::vector<std::int32_t>& lanes_of(int run, int rank) const { return plans_[runs_[run].number].lanes[rank]; }
  int joint_members(int run, std::int32_t joint) const { return plans_[runs_[run].number].joints[joint]; }

 private:
  struct PlanInfo {
    int first_lane;
    std::vector<std::vector<std::int32_t>> lanes;  // by rank
    std::vector<int> joints;                       // members, by joint
  };
  struct Run {
    const Plan* plan;
    int number;
    int epoch;
    int first_instance;
    int first_signal;
  };
  int ranks_ = 0;
  int instances_ = 0;
  int columns_ = 0;
  int signals_ = 0;
  std::vector<PlanInfo> plans_;
  std::vector<Run> runs_;
};

}  // namespace tileway::verifier
