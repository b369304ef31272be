#include "exec/board.hpp"

#include <fmt/format.h>

#include <set>

#include "plan/check.hpp"

namespace tileway {
namespace {

// Runs are compared by signed difference, as counters are.
std::int32_t behind(std::uint32_t a, std::uint32_t b) { return static_cast<std::int32_t>(a - b); }

}  // namespace

LanePlace& Board::lane(std::int32_t lane) const {
  return *reinterpret_cast<LanePlace*>(memory_[plan_.lanes[lane].rank] + layout_.place_offset[lane]);
}

std::atomic<std::uint32_t>& Board::runs_begun(int rank) const {
  return *reinterpret_cast<std::atomic<std::uint32_t>*>(memory_[rank]);
}

bool Board::ended(TaskId id, std::uint32_t run) const {
  const Task& task = plan_.tasks[id];
  const LanePlace& place = lane(task.lane);
  const std::int32_t difference = behind(place.run, run);
  return difference > 0 || (difference == 0 && place.index > static_cast<std::uint32_t>(task.index));
}

std::string Board::root_of(SignalId signal, std::uint32_t run,
                           const std::function<std::string(int)>& process_state) const {
  std::string through;
  std::set<SignalId> seen;
  while (seen.insert(signal).second) {
    TaskId missing = -1;
    for (std::size_t t = 0; t < plan_.tasks.size() && missing == -1; ++t) {
      for (const Notify& notify : plan_.tasks[t].notifies) {
        if (notify.signal == signal && !ended(static_cast<TaskId>(t), run)) missing = static_cast<TaskId>(t);
      }
    }
    if (missing == -1) return "by anyone, and has come since" + through;
    const Task& task = plan_.tasks[missing];
    if (behind(runs_begun(task.rank), run) < 0)
      return fmt::format("by rank {}, which has not begun run {}{}{}", task.rank, run - 1, process_state(task.rank),
                         through);
    const LanePlace& place = lane(task.lane);
    const std::vector<TaskId>& lane_tasks = plan_.lanes[task.lane].tasks;
    const std::uint32_t index = place.index;
    const std::int32_t waits_for = place.signal;
    if (behind(place.run, run) < 0 || index >= lane_tasks.size())
      return fmt::format("by rank {}, whose lane {} has not begun run {}{}{}", task.rank, task.lane, run - 1,
                         process_state(task.rank), through);
    const std::string at = task_name(plan_, lane_tasks[index]);
    if (waits_for == -1)
      return fmt::format("by rank {}, which is at {} and waits for nothing: it is slow or stuck{}{}", task.rank, at,
                         process_state(task.rank), through);
    through += fmt::format("{}{} waits for signal {}", through.empty() ? "; in between " : ", ", at, waits_for);
    signal = waits_for;
  }
  return "by a circle of waits" + through;
}

std::string Board::absent_from(TaskId joint, std::uint32_t run,
                               const std::function<std::string(int)>& process_state) const {
  for (std::size_t t = 0; t < plan_.tasks.size(); ++t) {
    const Task& task = plan_.tasks[t];
    if (task.joint != plan_.tasks[joint].joint || static_cast<TaskId>(t) == joint) continue;
    if (ended(static_cast<TaskId>(t), run)) continue;
    if (behind(runs_begun(task.rank), run) < 0)
      return fmt::format("rank {} has not begun run {}{}", task.rank, run - 1, process_state(task.rank));
    const LanePlace& place = lane(task.lane);
    const std::uint32_t index = place.index;
    const std::int32_t waits_for = place.signal;
    const bool there = behind(place.run, run) == 0 && index == static_cast<std::uint32_t>(task.index);
    if (there && waits_for == -1) continue;  // it has made the call
    if (behind(place.run, run) < 0 || waits_for == -1)
      return fmt::format("rank {} has not come to it in lane {}{}", task.rank, task.lane, process_state(task.rank));
    return fmt::format("rank {} has not come to it: there signal {} was not raised {}", task.rank, waits_for,
                       root_of(waits_for, run, process_state));
  }
  return "all members have come to it";
}

}  // namespace tileway
