#include "exec/board.hpp"

#include <fmt/format.h>

#include <algorithm>
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

// A stream's lane is beyond a task once it has let it through: members that are beyond a collective have begun it, and
// need not have ended it.
TaskId Board::absent_member(TaskId joint, std::uint32_t run) const {
  for (std::size_t t = 0; t < plan_.tasks.size(); ++t) {
    const auto id = static_cast<TaskId>(t);
    const Task& task = plan_.tasks[t];
    if (task.joint != plan_.tasks[joint].joint || id == joint || ended(id, run)) continue;
    const LanePlace& place = lane(task.lane);
    const bool there = behind(runs_begun(task.rank), run) >= 0 && behind(place.run, run) == 0 &&
                       place.index == static_cast<std::uint32_t>(task.index) && place.signal == -1;
    if (!there) return id;
  }
  return -1;
}

std::string Board::root_of(SignalId signal, std::uint32_t run,
                           const std::function<std::string(int)>& process_state) const {
  std::string through;
  const auto add = [&](const std::string& text) { through += (through.empty() ? "; in between " : ", ") + text; };
  std::set<SignalId> seen;
  while (seen.insert(signal).second) {
    TaskId missing = -1;  // a notifier that has not ended, or what it waits for
    for (std::size_t t = 0; t < plan_.tasks.size() && missing == -1; ++t) {
      const auto id = static_cast<TaskId>(t);
      const std::vector<Notify>& notifies = plan_.tasks[t].notifies;
      if (std::none_of(notifies.begin(), notifies.end(), [&](const Notify& n) { return n.signal == signal; })) continue;
      if (plan_.tasks[t].joint != -1) missing = absent_member(id, run);
      if (missing != -1) add(fmt::format("{} waits for its other members", task_name(plan_, id)));
      if (missing == -1 && !ended(id, run)) missing = id;
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
    add(fmt::format("{} waits for signal {}", at, waits_for));
    signal = waits_for;
  }
  return "by a circle of waits" + through;
}

std::string Board::absent_from(TaskId joint, std::uint32_t run,
                               const std::function<std::string(int)>& process_state) const {
  const TaskId absent = absent_member(joint, run);
  if (absent == -1) return "all members have come to it";
  const Task& task = plan_.tasks[absent];
  if (behind(runs_begun(task.rank), run) < 0)
    return fmt::format("rank {} has not begun run {}{}", task.rank, run - 1, process_state(task.rank));
  const LanePlace& place = lane(task.lane);
  const std::int32_t waits_for = place.signal;
  if (behind(place.run, run) < 0 || waits_for == -1)
    return fmt::format("rank {} has not come to it in lane {}{}", task.rank, task.lane, process_state(task.rank));
  return fmt::format("rank {} has not come to it: there signal {} was not raised {}", task.rank, waits_for,
                     root_of(waits_for, run, process_state));
}

}  // namespace tileway
