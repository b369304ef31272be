// Small plans drawn at random, good and bad.
#pragma once

#include <cstdint>

#include "tileway/plan.hpp"

namespace tileway::testing {

// A plan of one to three ranks and a few tasks that check_structure accepts. Mostly it orders what conflicts and tells
// peers when a run begins and ends; now and then it forgets something.
Plan random_plan(std::uint64_t seed);

}  // namespace tileway::testing
