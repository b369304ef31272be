// An order of events that shows what is wrong.
#pragma once

#include <vector>

#include "plan/verify/sequence.hpp"

namespace tileway::verifier {

// Events, in an order that the lanes and signals allow, that let `target` happen although `unfinished` has not ended;
// only those that it takes, `target` last. Empty where the target has to wait. A wait may be met by any notification.
std::vector<Event> witness(const Sequence& sequence, const Event& unfinished, const Event& target);

}  // namespace tileway::verifier
