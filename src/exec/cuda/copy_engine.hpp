// What a copy engine can do of a task: rows of bytes from one place to another.
#pragma once

#include <vector>

#include "runtime/cuda/driver.hpp"
#include "tileway/table.cuh"

namespace tileway::cuda {

// The copies that move the elements of a box, in row-major order, to the elements of another with as many: rows that
// lie evenly apart on both sides become one copy.
std::vector<Copy2D> copies_of(const View& from, const View& to, std::size_t element_bytes);

}  // namespace tileway::cuda
