// What can go wrong with a small plan, found by walking through every state that it can be in.
#pragma once

#include <cstddef>
#include <set>

#include "tileway/verify.hpp"

namespace tileway::testing {

struct Oracle {
  std::set<Fault> faults;
  std::size_t states = 0;
  bool finished = true;  // all states were seen
};

// Runs the plan `runs` times in every order that docs/MEMORY_MODEL.md allows: each lane's stages in turn, ranks in
// different runs, counters as they are in memory. Two conflicting accesses that can begin in one state are a race; a
// read that can begin before all of its elements are written is unwritten; a notification that can come before a wait
// of the run before has passed runs ahead, where several ranks raise the signal; a state from which nothing goes on is
// a deadlock. Shares no code with the verifier. Scopes and residency are no matter of order and are not looked at.
Oracle explore_every_order(const Plan& plan, int runs, std::size_t states_at_most);

// The same for plans of which nobody can see all states. For each step it runs everything else that can be run without
// that step: what comes then can come before it, and whatever does not come must wait for it. That is exact where
// nothing that can happen is ever prevented by something else happening, as in plans. Of elements that several tasks
// write it looks at each writer alone. Compared with the walk through every state in the tests.
Oracle explore_without_each_step(const Plan& plan, int runs);

}  // namespace tileway::testing
