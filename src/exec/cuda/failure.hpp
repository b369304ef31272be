// What a kernel has recorded, in words.
#pragma once

#include "exec/board.hpp"
#include "tileway/error.hpp"
#include "tileway/group.hpp"
#include "tileway/plan.hpp"
#include "tileway/table.cuh"

namespace tileway::cuda {

// In run `run` (from 1). The texts are those of the host executor.
Error error_of(const Failure& failure, const Plan& plan, const Board& board, std::uint32_t run, const Group& group);

}  // namespace tileway::cuda
