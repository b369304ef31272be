// What every piece of memory was made from.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "exec/host/explore/stepper.hpp"
#include "tileway/explore.hpp"

namespace tileway::host {

// Instead of values, memory holds tags: each written box carries a number made from the task that wrote it and the tags
// of all that it read. A stale or missing piece gives other tags, also where the numbers would have come out right.
class Provenance {
 public:
  // `given`: what no task of the plan writes is there from the beginning, as in a plan that tasks were taken out of.
  Provenance(const verifier::Sequence& sequence, bool given);

  // Reads or writes what the step does. A finding where it reads what the run has not written.
  std::optional<Finding> take(const Event& event);
  // Of all outputs that callers have read.
  std::uint64_t outcome() const { return outcome_; }

 private:
  struct Piece {
    Box box;
    std::int32_t slice;  // of a dynamic region; -1
    std::int32_t run;
    std::uint64_t tag;
  };
  using Slot = std::vector<Piece>;

  Slot& slot(BufferId buffer, int run) { return slots_[first_slot_[buffer] + run % plan_.buffers[buffer].slots]; }
  std::optional<Finding> take_caller(const Instance& caller);
  // What a member's write is made from: what it and others have read.
  std::uint64_t given_by_joint(const Instance& member, std::size_t write) const;
  void write(const Access& access, int run, std::uint64_t tag);
  // Adds what is read to `tag`.
  std::optional<Finding> read(const Access& access, const Instance& reader, int run, std::uint64_t& tag);

  bool somebody_writes(BufferId buffer, const Box& box) const;

  const verifier::Sequence& sequence_;
  const Plan& plan_;
  bool given_;
  std::vector<std::size_t> first_slot_;  // by buffer
  std::vector<Slot> slots_;
  std::vector<int> slices_;              // by partition: how many make it up
  std::vector<std::uint64_t> gathered_;  // by instance: of what it has read so far
  std::vector<std::vector<TaskId>> joints_;
  std::map<int, std::vector<std::uint64_t>> shown_;  // by instance of a joint's member: of each of its reads
  std::uint64_t outcome_ = 0;
};

}  // namespace tileway::host
