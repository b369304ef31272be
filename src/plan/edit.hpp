// Plans with something taken out, still well formed.
#pragma once

#include <vector>

#include "tileway/plan.hpp"

namespace tileway {

// The plan without the tasks that are marked, and without the other members of their joints: signals count what is
// left, nobody waits for more than that, and outputs that lost a writer are no outputs. Lanes, buffers and signals that
// nothing uses any more stay.
Plan without_tasks(const Plan& plan, std::vector<bool> gone);

// The plan without one wait of a task.
Plan without_wait(const Plan& plan, TaskId task, std::size_t wait);

}  // namespace tileway
