// Leaving out the signals that order nothing that is not ordered already.
#pragma once

#include "tileway/plan.hpp"

namespace tileway {

// Drops notifications that another notification of the same signal follows, waits for what the lane knows already or
// learns from its other waits, and signals that nobody waits for. A signal from a task to the next one of its lane, and
// to nobody else, becomes the mark after_previous. What is ordered stays exactly what it was. Every wait in the plan is
// for its signal's total.
void drop_redundant_signals(Plan& plan);

// Drops acknowledgements that the proof does without: waits for a peer's run to have begun or for a peer's visit to be
// over, where the data that the ranks exchange anyway say as much. Tries all of a kind at once, then one signal, one
// wait and one notification after the other as long as that is cheap.
void drop_needless_acknowledgements(Plan& plan);

}  // namespace tileway
