// Random inputs that a program accepts: for tests, benchmarks and trying things out.
#pragma once

#include <cstdint>

#include "tileway/interpreter.hpp"
#include "tileway/program.hpp"

namespace tileway {

enum class Fill : std::uint8_t {
  integers,  // whole numbers from -2 to 2: sums of thousands of products are exact in fp32, so any order gives the same
             // bits
  normal,    // standard normal, rounded to the dtype
};

// What each world rank holds of every input. The same seed gives the same whole tensors for any number of ranks.
// Integer inputs that some operation uses as indices are valid indices of its table; splits of all_to_all_v fit what is
// there and what can be received. Scales of scaled_matmul are positive: 1 or 2 among integers.
Bindings random_inputs(const Program& program, std::uint64_t seed, Fill fill);

}  // namespace tileway
