// The proof that a plan is safe: over all ranks, lanes and interleavings, for any number of runs.
//
// docs/MEMORY_MODEL.md states what is proven, from what, and the argument.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tileway/plan.hpp"

namespace tileway {

// Why a plan is refused.
enum class Fault : std::uint8_t {
  deadlock,   // some tasks can never start
  race,       // two accesses conflict and nothing orders them
  unwritten,  // what is read has not been written before, in every order
  run_ahead,  // a notification of the next run may come before a wait of this one has passed
  scope,      // a signal is raised at a scope that its waiter does not share
  residency,  // more lanes than the topology has: what waits might keep what it waits for from starting
};
inline constexpr int kFaultCount = 6;
std::string_view name_of(Fault fault);

// A task in one of the runs that are looked at; task -1: the caller of `rank` before that run.
struct Instance {
  std::int32_t run = 0;
  TaskId task = -1;
  std::int32_t rank = 0;
  friend bool operator==(const Instance&, const Instance&) = default;
};

// One thing that happens: a stage of a task, or a caller's turn. A task's notifications follow its store stage.
struct Event {
  Instance instance;
  Stage stage = Stage::load;
  friend bool operator==(const Event&, const Event&) = default;
};

// A counterexample.
struct Refusal {
  Fault fault = Fault::deadlock;
  std::vector<Instance> tasks{};  // those at fault; of a race, first the one that should have come first
  SignalId signal = -1;
  BufferId buffer = -1;  // of the plan of tasks[0]
  Box region{};
  std::string text{};          // in words: which tasks, ranks, signal, region, and the order in which it goes wrong
  std::vector<Event> order{};  // that order; for a deadlock, up to where nothing can go on
};

// What a proof counted.
struct Proof {
  std::size_t runs = 0;
  std::size_t instances = 0;  // tasks times runs
  std::size_t lanes = 0;
  std::size_t waits = 0;          // of one run
  std::size_t longest_chain = 0;  // tasks of one run, each of which waits for the one before
  std::size_t pairs = 0;          // pairs of accesses that conflict, all ordered
  std::size_t bytes = 0;          // memory that the proof took for its clocks
};

struct Verdict {
  std::optional<Refusal> refusal;
  Proof proof;
  bool proven() const { return !refusal.has_value(); }
};

// The plan repeated, as often as shows every reuse of its memory. Runs check_structure first and throws what that
// throws.
Verdict verify(const Plan& plan);
// Several plans of one group, which may share memory (Buffer::shared): each alone, and every ordered pair.
Verdict verify(std::span<const Plan* const> plans);

// A plan that was proven, and nothing else: executors take no other. Cannot be changed.
class ProvenPlan {
 public:
  // Throws Error (refused) with the counterexample.
  static ProvenPlan prove(Plan plan);
  const Plan& plan() const { return plan_; }
  const Proof& proof() const { return proof_; }
  // fingerprint(plan()): what an executor compares with the tables that it follows.
  std::uint64_t fingerprint() const { return fingerprint_; }

 private:
  ProvenPlan(Plan plan, const Proof& proof);
  Plan plan_;
  Proof proof_;
  std::uint64_t fingerprint_;
};

}  // namespace tileway
