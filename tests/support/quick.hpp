// Whether tests do less of the same: under sanitizers, which take their time (scripts/sanitize sets TILEWAY_QUICK).
#pragma once

#include <cstdlib>

namespace tileway::testing {

inline bool quick() { return std::getenv("TILEWAY_QUICK") != nullptr; }

}  // namespace tileway::testing
