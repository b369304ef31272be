// What the assembler made of a kernel, instruction by instruction: whether loops keep what they need in registers, and
// how many loads they have under way. Its own count of spills includes what is put aside once a call, which costs
// nothing.
#pragma once

#include <string>
#include <vector>

namespace tileway::testing {

// A loop of a function of a cubin, without the loops in it. Spills are what goes to local memory and comes from there
// for want of registers. All are numbers of instructions.
struct Loop {
  std::string function;
  int instructions = 0;
  int multiplies = 0;         // of tensor cores, and fused ones of fp32
  int multiplies_within = 0;  // in the loops in it
  int spill_stores = 0;
  int spill_loads = 0;
  int wide_loads_together = 0;  // of sixteen bytes, with no branch between
};

// Empty where nvdisasm is: $TILEWAY_NVDISASM (scripts/install test brings it), or on the path. Else what to do.
std::string why_no_sass();
// Throws Error (system) where nvdisasm fails.
std::vector<Loop> loops_of(const std::string& cubin);

}  // namespace tileway::testing
