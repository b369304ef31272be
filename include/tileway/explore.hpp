// Running a plan on one thread, a step at a time, in adversarial orders: the hunt for counterexamples by execution.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tileway/array.hpp"
#include "tileway/plan.hpp"
#include "tileway/verify.hpp"

namespace tileway {

// How the next step is chosen among those that can be taken.
enum class Adversary : std::uint8_t {
  uniform,     // any
  delay_rank,  // those of one rank only when there is no other
  delay_lane,  // those of one lane only when there is no other
  one_lane,    // one lane as far as it goes, then another
  reverse,     // the one that became possible last
};
inline constexpr int kAdversaryCount = 5;
std::string_view name_of(Adversary adversary);
// The one that a seed stands for.
Adversary adversary_of(std::uint64_t seed);

// What an execution showed.
struct Finding {
  Fault fault = Fault::race;
  std::vector<Instance> tasks{};
  std::string text{};
};

struct Exploration {
  std::optional<Finding> finding;
  std::size_t steps = 0;
  std::uint64_t outcome = 0;  // what the outputs of all runs were made from: the same for every order of a good plan
};

// Runs the plan `runs` times (0: as often as verify() does) with all ranks and lanes in one process. One step is one
// stage of one task; what can be taken next is as docs/MEMORY_MODEL.md says. Values are not computed: every piece of
// memory carries which tasks it came from (its provenance), so plans of any size can be run. Steps that can be taken at
// the same time and conflict are a race, whatever comes out; a read of what no task of the run has written is
// unwritten; steps left over when none can be taken are a deadlock. Looks at neither scopes nor residency. Throws what
// check_structure throws.
Exploration explore(const Plan& plan, std::uint64_t seed, int runs = 0);

// What each rank holds of each named tensor: [name][rank].
using PartsByName = std::map<std::string, std::vector<Array>>;

// The same with values: run r begins with `inputs[r]`. Bodies work on copies of what they declared to read, in memory
// that holds poison wherever nothing was written, and a write outside of what was declared ends the process (a kernel's
// bug). Throws Error (invalid) for inputs that do not fit and for data out of range.
struct ValueExploration {
  Exploration exploration;
  std::vector<PartsByName> outputs;  // of each run, as far as it came
};
ValueExploration explore_values(const Plan& plan, std::uint64_t seed, const std::vector<PartsByName>& inputs);

// Takes these steps, in this order, and stops: for the orders that verify() returns. Throws Error (invalid) at a step
// that cannot be taken.
Exploration replay(const Plan& plan, const std::vector<Event>& order);

// A plan with as few tasks as can be that fails with the fault that this seed shows, what the others would have written
// taken as there: without any one of them none of the fifty seeds from this one on shows it (five, one for each
// adversary, for plans of 500 tasks and more). Throws Error (invalid) where the plan does not fail.
Plan shrink(const Plan& plan, std::uint64_t seed);

}  // namespace tileway
