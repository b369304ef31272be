// Runs plans on CPU ranks.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tileway/array.hpp"
#include "tileway/group.hpp"
#include "tileway/plan.hpp"
#include "tileway/trace.hpp"
#include "tileway/verify.hpp"

namespace tileway {

// One rank's part of a plan in execution: each lane is a thread, tasks run in the order of the lane, signals are
// counters in symmetric memory. Rank i of the plan is rank i of the group.
//
// Construction is collective: the ranks compare program, dtypes, shapes, schedule, topology and the plan itself, and
// throw the same Error (mismatch) everywhere if they differ; then memory is allocated and exchanged. Only a plan that
// was proven is taken. Joint tasks, accumulates and shared buffers are refused (invalid): the host has no engine for
// them. Between runs the caller owns inputs and outputs. A run need not be synchronised with other ranks' runs.
class HostExecutor {
 public:
  struct Options {
    double link_gb_s = 0;  // slows every transfer to a peer to this rate; 0: as fast as memory is
    bool trace = false;
  };

  HostExecutor(Group& group, ProvenPlan plan, Options options);
  HostExecutor(Group& group, ProvenPlan plan) : HostExecutor(group, std::move(plan), Options{}) {}
  HostExecutor(HostExecutor&&) noexcept;
  HostExecutor& operator=(HostExecutor&&) noexcept;
  ~HostExecutor();

  // Copies this rank's part in. Throws Error (invalid) for an unknown name, a wrong dtype or a wrong shape.
  void set_input(const std::string& name, const Array& part);
  // A copy of this rank's part of an output, or of an input (for what a program updates in place).
  Array get(const std::string& name) const;
  // Whether this rank holds a part of the tensor: it is not in every group.
  bool holds(const std::string& name) const;

  // Runs the plan once. Throws Error (invalid) for data out of range, Error (lost) when a rank has died or failed, or a
  // wait has passed the group's deadline; after that the executor only throws.
  void run();

  const Plan& plan() const;
  // The last run's events on this rank, in order of lanes. Empty unless Options::trace.
  const std::vector<TraceEvent>& trace() const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace tileway
