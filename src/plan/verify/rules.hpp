// The rules of a proof that need no order, and those about signals.
#pragma once

#include <optional>

#include "plan/verify/clocks.hpp"
#include "tileway/verify.hpp"

namespace tileway::verifier {

std::optional<Refusal> check_scopes(const Plan& plan);
std::optional<Refusal> check_residency(const Plan& plan);
// `progress` is not complete.
Refusal deadlock(const Sequence& sequence, const Progress& progress);
std::optional<Refusal> check_run_ahead(const Sequence& sequence, const Clocks& clocks);

// "task 3 (rank 1, %2 matmul) of run 0", or "the caller of rank 1 before run 2".
std::string describe(const Sequence& sequence, const Instance& instance);
// What orders a task after others and others after it: its waits and those before it in its lane, its notifications and
// those after it.
std::string waits_of(const Plan& plan, TaskId id);
std::string raises_of(const Plan& plan, TaskId id);
// What the caller of a rank follows: a line for each lane that has waits.
std::string waits_of_rank(const Plan& plan, std::int32_t rank);
// What may be missing between a task and those of a rank that it should come before: what those raise who wait for its
// lane; signals that its rank raises there and nobody waits for in full. A line each.
std::string loose_ends(const Plan& plan, TaskId first, std::int32_t rank);
// The order, a step a line, the middle left out where it is long.
std::string order_text(const Sequence& sequence, const std::vector<Event>& order);

}  // namespace tileway::verifier
