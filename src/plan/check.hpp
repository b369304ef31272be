// Parts of check_structure.
#pragma once

#include <string>

#include "tileway/plan.hpp"

namespace tileway {

// "task 17 (rank 2, %3 all_reduce)".
std::string task_name(const Plan& plan, TaskId id);

// Throws Error (invalid) when the boxes of a task do not fit its body. Assumes valid indices.
void check_arguments(const Plan& plan, TaskId id);

}  // namespace tileway
