// An order of events that shows what is wrong.
#pragma once

#include <vector>

#include "plan/verify/sequence.hpp"

namespace tileway::verifier {

// Events, in an order that the lanes and signals allow, after which `target` can happen although `unfinished` has not;
// only those that it takes, and `target` last. Before it `unfinished` can happen too, if it can without the target, so
// that the two meet. Empty where the target has to wait.
std::vector<Event> witness(const Sequence& sequence, const Event& unfinished, const Event& target);

}  // namespace tileway::verifier
