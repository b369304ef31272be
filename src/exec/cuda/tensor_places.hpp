// Where the boxes of matrix products lie, as TMA is told of it.
#pragma once

#include <optional>

#include "exec/cuda/addresses.hpp"
#include "runtime/cuda/tensor_map.hpp"
#include "tileway/plan.hpp"

namespace tileway::cuda {

// A box in what its tensor map is of: its whole buffer, so that few maps do for many tasks; or itself, where tiles may
// reach beyond it to what is not theirs, or in a buffer of more than two dimensions. A matter of the plan alone.
struct TensorPlace {
  bool whole = false;
  TensorBox box;  // of the map
  unsigned lines = 0;
  unsigned x = 0;  // where the task's box begins in it, in elements along rows and across
  unsigned y = 0;
};

// The operands of a matrix product of elements of one byte or two, where tensor loads can take both, with one batch
// dimension at most.
struct LoadableOperands {
  TensorPlace a;
  TensorPlace b;
};
std::optional<LoadableOperands> loadable(const Addresses& addresses, const Task& product);
// Its result; none where tensor stores cannot take it, and workers store.
std::optional<TensorPlace> storable(const Addresses& addresses, const Task& product);

}  // namespace tileway::cuda
