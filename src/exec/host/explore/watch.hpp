// Watches an exploration for what may go wrong between steps: conflicts, and signals that run ahead.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "exec/host/explore/stepper.hpp"
#include "tileway/explore.hpp"

namespace tileway::host {

class Watch {
 public:
  explicit Watch(const verifier::Sequence& sequence);

  // A step can be taken from now on: does it conflict with another that can, or run ahead?
  std::optional<Finding> opened(const Stepper& stepper, const Step& step);
  void closed(const Step& step);

 private:
  struct Open {
    Event event;
    const Access* access;
  };
  struct Slot {
    std::vector<Open> reads;
    std::vector<Open> writes;  // accumulates too
  };
  std::vector<std::pair<std::size_t, const Access*>> touches(const Event& event) const;
  std::optional<Finding> conflict(const Open& a, const Open& b) const;
  std::optional<Finding> ahead(const Stepper& stepper, const Step& step) const;

  const verifier::Sequence& sequence_;
  const Plan& plan_;
  std::vector<std::size_t> first_slot_;  // by buffer
  std::vector<Slot> slots_;
  std::vector<std::vector<TaskId>> waiters_;        // by signal that several ranks raise
  std::vector<std::vector<Access>> caller_writes_;  // by rank
  std::vector<std::vector<Access>> caller_reads_;   // by rank
};

}  // namespace tileway::host
