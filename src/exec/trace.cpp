#include "tileway/trace.hpp"

#include <algorithm>

namespace tileway {

TraceSummary summarise(const Plan& plan, const std::vector<TraceEvent>& events) {
  TraceSummary summary;
  if (events.empty()) return summary;
  std::int64_t first = events.front().wait_begin;
  std::int64_t last = events.front().end;
  for (const TraceEvent& event : events) {
    first = std::min(first, event.wait_begin);
    last = std::max(last, event.end);
    const Task& task = plan.tasks[event.task];
    const double busy = static_cast<double>(event.end - event.begin) * 1e-3;
    if (plan.bytes_sent(task) > 0 || task.joint != -1) summary.sending_us += busy;
    const Engine engine = plan.lanes[task.lane].engine;
    if (engine == Engine::library) summary.library_us += busy;
    if (engine != Engine::compute) continue;
    summary.computing_us += busy;
    summary.waiting_us += static_cast<double>(event.begin - event.wait_begin) * 1e-3;
  }
  summary.span_us = static_cast<double>(last - first) * 1e-3;
  return summary;
}

}  // namespace tileway
