// All bodies of tasks. A generated kernel calls those that its plan uses.
#pragma once

#include "tileway/dynamic.cuh"
#include "tileway/lookup.cuh"
#include "tileway/matmul_mma.cuh"
#include "tileway/matmul_plain.cuh"
#include "tileway/move.cuh"
#include "tileway/pointwise.cuh"
#include "tileway/reduce.cuh"
#include "tileway/rows.cuh"

namespace tileway {

__device__ inline void nothing(const Arguments&) {}

constexpr u32 larger(u32 a, u32 b) { return a > b ? a : b; }

}  // namespace tileway
