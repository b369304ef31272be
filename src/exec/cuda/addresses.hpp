// Where a plan's buffers and signals lie on GPUs, and boxes of them as kernels see them.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "plan/layout.hpp"
#include "runtime/cuda/driver.hpp"
#include "runtime/cuda/tensor_map.hpp"
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

// The operands of a matrix product of elements of one byte or two as boxes that tensor loads can take, with one batch
// dimension at most; none where they cannot take both.
struct LoadableOperands {
  TensorBox a;
  TensorBox b;
  unsigned lines_of_b;  // of one load
};
std::optional<LoadableOperands> loadable(const Addresses& addresses, const Task& product);

}  // namespace tileway::cuda
