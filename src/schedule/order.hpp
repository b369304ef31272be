// From a task graph to lanes: a simulated run decides which lane starts which task, and when.
#pragma once

#include <vector>

#include "schedule/graph.hpp"
#include "tileway/schedule.hpp"

namespace tileway {

// Fills in lanes, and each task's lane and index; returns when the simulated run had it. The joints of one group of
// ranks are on one lane of each member, in the order in which the run came to them: the same everywhere, and one that
// no other wait contradicts. Throws Error (invalid) where the topology has too few collective lanes. Where it has
// movers, the first lanes of each rank take what collectives move by compute lanes, and the others the rest. Greedy
// list scheduling: whenever a lane is free it starts the ready task of its engine that, in this order, more transfers
// depend on; comes later in the program, or, where none do, earlier; feeds an earlier joint; sends to a nearer peer,
// counting upwards from this rank, what no peer waits for last; was added earlier.
std::vector<Lowered::Span> assign_lanes(TaskGraph& graph);

// One signal a join: producers notify it, consumers wait for all of them.
void assign_signals(TaskGraph& graph);

}  // namespace tileway
