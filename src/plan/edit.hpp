// Plans with something taken out, still well formed.
#pragma once

#include <vector>

#include "tileway/plan.hpp"

namespace tileway {

// The plan without the tasks that are marked, and without the other members of their joints: signals count what is
// left, nobody waits for more than that, and outputs that lost a writer are no outputs. Lanes, buffers and signals that
// nothing uses any more stay.
Plan without_tasks(const Plan& plan, std::vector<bool> gone);

// Makes signals count what is raised, and nobody wait for more than that. One that is raised never, or a gate that
// nobody waits for, becomes an ordinary counter.
void settle_signals(Plan& plan);

// The plan without one wait of a task.
Plan without_wait(const Plan& plan, TaskId task, std::size_t wait);

}  // namespace tileway
