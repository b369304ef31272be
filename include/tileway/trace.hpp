// What happened when: the same events from every executor.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tileway/plan.hpp"

namespace tileway {

// A task's life in its lane. Times in nanoseconds of the machine's steady clock, the same for all ranks of a machine.
struct TraceEvent {
  TaskId task = -1;
  std::int64_t wait_begin = 0;  // the lane reached the task
  std::int64_t begin = 0;       // its waits were over
  std::int64_t end = 0;         // its notifications were raised
};

// Where one rank's time went, in microseconds, summed over its lanes of an engine.
struct TraceSummary {
  double span_us = 0;       // from the first event to the last
  double computing_us = 0;  // compute lanes in tasks
  double library_us = 0;    // library lanes in tasks
  double waiting_us = 0;    // compute lanes waiting for signals
  double sending_us = 0;    // tasks that write to another rank
};
TraceSummary summarise(const Plan& plan, const std::vector<TraceEvent>& events);

}  // namespace tileway
