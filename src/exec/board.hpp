// What every lane of every rank is doing, in memory that all ranks see; and from that, who keeps a wait from ending.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "plan/layout.hpp"
#include "tileway/plan.hpp"

namespace tileway {

// Where a lane is. Written by the lane alone and read by others only when they have waited too long, so the fields need
// no order among each other: whoever looks, looks at a lane that stands still.
struct LanePlace {
  std::atomic<std::uint32_t> run;     // the number of the run, from 1
  std::atomic<std::uint32_t> index;   // of the task in the lane; the lane's length at its end
  std::atomic<std::int32_t> signal;   // that it waits for; -1
  std::atomic<std::uint32_t> unused;  // keeps the next one at 16 bytes
};
static_assert(sizeof(LanePlace) == PlanLayout::kPlaceBytes);

class Board {
 public:
  // `memory`: by rank, where its board (PlanLayout), or a copy of it, lies.
  Board(const Plan& plan, const PlanLayout& layout, std::vector<std::byte*> memory)
      : plan_(plan), layout_(layout), memory_(std::move(memory)) {}

  LanePlace& lane(std::int32_t lane) const;
  // How many runs a rank has begun.
  std::atomic<std::uint32_t>& runs_begun(int rank) const;

  // Why a signal has not been raised in run `run` (from 1): follows from its notifiers what their lanes wait for, to a
  // lane that does not wait or a rank that has not come to the run. "by rank 2, which ..." `process_state` says of a
  // rank what is known of its process.
  std::string root_of(SignalId signal, std::uint32_t run, const std::function<std::string(int)>& process_state) const;
  // Which member has not come to a joint in run `run`, and why: "rank 2 has not begun run 3".
  std::string absent_from(TaskId joint, std::uint32_t run, const std::function<std::string(int)>& process_state) const;

 private:
  bool ended(TaskId task, std::uint32_t run) const;
  // Another member of the task's joint, which has not come to it; -1.
  TaskId absent_member(TaskId joint, std::uint32_t run) const;

  const Plan& plan_;
  const PlanLayout& layout_;
  std::vector<std::byte*> memory_;
};

}  // namespace tileway
