// Memory of the caller's for a rank's inputs and outputs.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "exec/cuda/addresses.hpp"
#include "runtime/cuda/driver.hpp"
#include "tileway/plan.hpp"

namespace tileway::cuda {

using Brought = std::map<BufferId, Address>;  // where the caller's memory for a buffer begins

std::set<BufferId> buffers_of(const Brought& brought);

// Throws Error (invalid) where a buffer cannot lie there: its place changes from run to run, the address is none of the
// rank's GPU, or it begins between two elements.
void check_brought(const Plan& plan, BufferId id, Address address, const Gpu& gpu);

// Between the caller's memory and the executor's, of what peers use too.
struct BroughtCopies {
  std::vector<CopyRow> in;   // before a run's tasks
  std::vector<CopyRow> out;  // behind them
};
BroughtCopies copies_of(const Addresses& addresses);

}  // namespace tileway::cuda
