// The verifier with some of its rules switched off: for tests that show that each of them is needed.
#pragma once

#include <set>

#include "tileway/verify.hpp"

namespace tileway::verifier {

// Of a plan alone: one run more than the period after which its memory recurs.
int runs_to_prove(const Plan& plan);

Verdict verify_without(std::span<const Plan* const> plans, const std::set<Fault>& switched_off);

}  // namespace tileway::verifier
