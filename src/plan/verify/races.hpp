// Conflicting accesses that nothing orders, and reads of what may not be written yet.
#pragma once

#include <optional>
#include <vector>

#include "plan/verify/clocks.hpp"
#include "plan/verify/memory.hpp"

namespace tileway::verifier {

// What is wrong between two touches, or of one. Text and order are added later.
struct Suspect {
  Fault fault;
  Instance first;   // unwritten: the writer that is not ordered before, or task -1 of the reader's rank for nobody
  Instance second;  // unwritten: the reader
  Stage first_stage;
  Stage second_stage;
  const Plan* plan;  // whose buffer it is
  BufferId buffer;
  Box region;
  bool nobody_writes = false;
};

// The races and unwritten reads of one memory; `pairs` counts conflicting pairs.
void find_suspects(const Sequence& sequence, const Clocks& clocks, const Memory& memory, std::vector<Suspect>& suspects,
                   std::size_t& pairs);

}  // namespace tileway::verifier
