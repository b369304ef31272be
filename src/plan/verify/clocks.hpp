// What must have happened before what, in every execution.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "plan/verify/progress.hpp"
#include "plan/verify/sequence.hpp"

namespace tileway::verifier {

// Vector clocks with a column for each lane (Sequence::columns), kept in blocks and shared between the many tasks that
// know the same. A clock never changes once others can see it.
class ClockStore {
 public:
  using Id = std::uint32_t;

  explicit ClockStore(int columns);
  Id zero() const { return 0; }
  const std::uint32_t* at(Id id) const { return blocks_[id / kBlock].get() + (id % kBlock) * columns_; }
  // The larger of both in every column; one of the two where it already is.
  Id join(Id a, Id b);
  Id join(Id a, const std::uint32_t* clock);
  // The clock with at least `count` in one column.
  Id raise(Id a, int column, std::uint32_t count);
  // The clock whose columns `fill(std::uint32_t*)` writes.
  template <typename Fill>
  Id make(const Fill& fill) {
    fill(scratch());
    return count_++;
  }
  std::size_t bytes() const { return blocks_.size() * kBlock * columns_ * sizeof(std::uint32_t); }
  std::size_t columns() const { return columns_; }

 private:
  static constexpr std::size_t kBlock = 256;
  static constexpr std::size_t kMostBytes = std::size_t{8} << 30;
  std::uint32_t* scratch();  // of clock `count_`

  std::size_t columns_;
  Id count_ = 0;
  std::vector<std::unique_ptr<std::uint32_t[]>> blocks_;
};

// Of every stage of every instance: how many tasks of each lane have ended before it begins, whatever the order.
//
// The order of a lane is weaker than serial: each stage takes the lane's tasks in turn, and a task's stages follow each
// other, but a task may load before the one before it has stored, unless it is marked after_previous. A wait for a
// signal's total is after all its notifications; a wait for less is after those without which the value cannot be
// reached. The caller of a rank is between the runs of that rank.
class Clocks {
 public:
  // `progress` must be complete.
  Clocks(const Sequence& sequence, const Progress& progress);

  // Whether `first` has ended (raised its notifications) before that stage of `second` begins.
  bool ended_before(int first, int second, Stage stage) const {
    return store_.at(stages_[second][static_cast<std::size_t>(stage)])[column_[first]] >= count_[first];
  }
  // The same for a stage of the first: also true where the lane orders stages.
  bool stage_before(int first, Stage first_stage, int second, Stage second_stage) const;
  // Whether the caller of `rank` before `run` has had its turn before that stage begins, and the reverse.
  bool caller_before(int rank, int run, int instance, Stage stage) const {
    return store_.at(stages_[instance][static_cast<std::size_t>(stage)])[sequence_.caller_column(rank)] >
           static_cast<std::uint32_t>(run);
  }
  bool ended_before_caller(int instance, int rank, int run) const {
    return store_.at(callers_[rank][run])[column_[instance]] >= count_[instance];
  }
  bool caller_before_caller(int rank, int run, int other, int other_run) const {
    return store_.at(callers_[other][other_run])[sequence_.caller_column(rank)] > static_cast<std::uint32_t>(run);
  }
  std::size_t bytes() const;

 private:
  class Builder;
  const Sequence& sequence_;
  ClockStore store_;
  std::vector<std::array<ClockStore::Id, 3>> stages_;  // by instance
  std::vector<int> column_;                            // by instance
  std::vector<std::uint32_t> count_;                   // by instance: its lane's column once it has ended
  std::vector<std::vector<ClockStore::Id>> callers_;   // by rank and run; also after the last run
};

}  // namespace tileway::verifier
