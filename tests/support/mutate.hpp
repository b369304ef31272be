// Single edits that break a plan.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "tileway/verify.hpp"

namespace tileway::testing {

enum class Edit : std::uint8_t {
  drop_wait,
  drop_acknowledgement,  // a wait for a peer's run to have begun, or for its visit to be over
  lower_wait,
  drop_notification,
  redirect_notification,  // to a signal of another rank
  weaken_scope,
  swap_tasks,  // in a lane, the later of which depends on the earlier
  move_task,   // before one of its lane's neighbours that it depends on, or to a lane that the machine has not
  drop_after_previous,
  shrink_buffer,
  shift_box,  // what is written
  swap_joints,
};
inline constexpr int kEditCount = 12;
std::string_view name_of(Edit edit);

struct Mutant {
  Edit edit;
  std::function<void(Plan&)> apply;
  std::vector<TaskId> tasks;        // of the plan: those that were edited
  std::vector<SignalId> signals{};  // that were edited
  std::string buffer{};             // that was edited
  std::set<Fault> expected{};       // empty: check_structure refuses it
  std::string text{};
};

// Of all of them one in `every`, drawn by the seed.
std::vector<Mutant> mutants(const Plan& plan, std::uint64_t every = 1, std::uint64_t seed = 0);
Plan apply(const Mutant& mutant, const Plan& plan);

}  // namespace tileway::testing
