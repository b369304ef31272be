// Nothing runs before the ranks agree on what it is.
#pragma once

#include "tileway/group.hpp"
#include "tileway/verify.hpp"

namespace tileway {

// Collective. Throws the same Error (mismatch) on every rank, showing the first difference with both values, unless all
// ranks hold the same plan.
void agree(Group& group, const ProvenPlan& plan);

}  // namespace tileway
