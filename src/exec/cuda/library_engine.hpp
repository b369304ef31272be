// What a library of matrix products does of a task.
#pragma once

#include <vector>

#include "runtime/cuda/cublaslt.hpp"
#include "tileway/table.cuh"

namespace tileway::cuda {

// c = a b as a plan's body matmul has it, in calls of the library: leading dimensions along which all matrices lie
// evenly apart become one call, and those that only make a's rows more, rows. None where c is empty.
std::vector<Products> products_of(const View& a, const View& b, const View& c, DType dtype, bool tf32);

}  // namespace tileway::cuda
