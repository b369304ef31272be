// Where a plan's buffers and signals lie on GPUs, and boxes of them as kernels see them.
#pragma once

#include <map>
#include <vector>

#include "plan/layout.hpp"
#include "runtime/cuda/driver.hpp"
#include "tileway/plan.hpp"
#include "tileway/table.cuh"

namespace tileway::cuda {

// Where everything lies, as this process sees it.
struct Addresses {
  const Plan& plan;
  const PlanLayout& layout;
  std::vector<Address> symmetric;         // by rank; 0 where this process does not see that rank's
  Address own = 0;                        // the private memory of this rank
  std::map<BufferId, Address> brought{};  // the caller's: of private buffers, tasks use it
  Address board = 0;                      // of this rank: how many runs it has begun, and where its lanes are

  Address buffer(BufferId id) const;  // slot 0
  Address signal(SignalId id) const;
  View view(const Access& access) const;
};

}  // namespace tileway::cuda
