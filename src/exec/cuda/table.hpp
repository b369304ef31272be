// The table of one rank's lanes, as the kernel follows it: made from a proven plan, and read back into one.
#pragma once

#include <cstddef>
#include <vector>

#include "exec/cuda/addresses.hpp"
#include "exec/cuda/variant.hpp"
#include "runtime/cuda/tensor_map.hpp"
#include "tileway/plan.hpp"
#include "tileway/table.cuh"

namespace tileway::cuda {

struct Table {
  std::vector<LaneRow> lanes;         // compute, a block each
  std::vector<LaneRow> stream_lanes;  // of the other engines
  std::vector<TaskRow> tasks;         // of all these lanes, one after the other
  std::vector<View> views;
  std::vector<WaitRow> waits;
  std::vector<NotifyRow> notifies;
  std::vector<BodyRow> bodies;
  std::vector<TensorMap> maps;
  std::size_t most_maps = 0;  // that there are wherever the caller has its memory: some boxes TMA can take or not
};

// Throws Error (invalid) for a plan that the kernel cannot follow.
Table make_table(const Addresses& addresses, int rank, const KernelText& text);

// The plan with this rank's tasks and all bodies as the table has them; what a table does not hold (names, what a task
// is part of) as in `addresses.plan`. Throws Error (system) where the table is not one that make_table could have made.
Plan read_table(const Table& table, const Addresses& addresses, int rank);

}  // namespace tileway::cuda
