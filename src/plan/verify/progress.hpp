// Which tasks can run at all, and in what order.
#pragma once

#include <vector>

#include "plan/verify/sequence.hpp"

namespace tileway::verifier {

struct Progress {
  // Instances in an order in which they can end, lanes strictly serial. A task that waits for less than a signal's
  // total comes as late as it can, so what is before it here can happen without it.
  std::vector<int> order;
  std::vector<bool> ended;  // by instance
  bool complete = false;
  // For each rank, the run that it is in at the end, and in that run the task that each lane stands at, -1 at its end.
  std::vector<int> run_of_rank;
  std::vector<int> standing;  // by lane column: an instance
};

// Runs everything that can run. Counters only grow and a wait takes nothing away, so a task that may run stays able to
// run and every order comes to the same end: one greedy order decides. `frozen`: an instance that never ends.
Progress progress(const Sequence& sequence, int frozen = -1);

}  // namespace tileway::verifier
