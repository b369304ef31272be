// Who touches what: every memory of a sequence with all accesses to it.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "plan/verify/sequence.hpp"

namespace tileway::verifier {

// An access of a task of a plan, or of a caller (task -1): it writes inputs before a run and reads outputs after it.
struct Touch {
  int plan_number;
  TaskId task;
  std::int32_t rank;  // who touches it
  BufferId buffer;    // of that plan
  const Access* access;
};

struct Memory {
  std::int32_t slots = 1;
  std::vector<std::unique_ptr<Access>> callers;  // what the touches of callers point to
  std::vector<Touch> touches;
};

// One for each buffer, and for each name that buffers share. Accesses of nothing (empty boxes) are left out.
std::vector<Memory> memories(const Sequence& sequence);

// What is left of `box` without `hole`, as boxes that do not overlap.
std::vector<Box> without(Box box, const Box& hole);

// A part of `box` that none of `covers` has, if there is one.
std::optional<Box> uncovered(const Box& box, const std::vector<Box>& covers);

// How many slices a partition has, the rest included; 0 where no task names it.
int slices_of(const Plan& plan, std::int32_t partition);

}  // namespace tileway::verifier
