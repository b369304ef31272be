// Where the ranks of a program run on this machine: on its CPUs or on its GPUs.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "tileway/executor.hpp"
#include "tileway/group.hpp"
#include "tileway/topology.hpp"

namespace tileway {

struct Place {
  bool cuda = false;
  int gpus = 0;             // that there are
  int multiprocessors = 0;  // of the one with fewest
  bool linked = true;       // each can use the others' memory
  std::string_view name() const { return cuda ? "cuda" : "host"; }
};

// "host", "cuda", or "auto", which is cuda where there is a GPU for each rank. Asks for GPUs in a process of its own,
// so that this one can still start ranks. Throws Error (invalid) for another name, and for cuda where there is no GPU.
Place choose_place(std::string_view executor, int ranks);

// What ranks can use there: all SMs of their GPU, divided where ranks share one. Where GPUs are not linked, some are
// left to a collective lane.
Topology topology_of(const Place& place, int ranks);

// The schedule for a run there without a choice (Schedule::named): overlapped, or collective where GPUs are not linked.
std::string_view schedule_of(const Place& place);

// Group::spawn; but ranks that share a GPU are threads of one process, since processes on one device take turns.
void start_ranks(const Place& place, int ranks, const std::function<void(Group&)>& body);

// Collective. The executor of the place; `trace` has it keep each run's events.
std::unique_ptr<Executor> make_executor(const Place& place, Group& group, ProvenPlan plan, bool trace = false);

}  // namespace tileway
