// The calls of a collective library that one operation makes, round by round: in a round every rank makes one call, and
// together they are a joint. A library takes contiguous memory; where a box is none, compute lanes pack it before the
// call, or unpack it afterwards.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "schedule/graph.hpp"

namespace tileway {

class LibraryCalls {
 public:
  // `ranks`, ascending, make the calls; `body` says what they are. `name` is for the memory in between.
  LibraryCalls(TaskGraph& graph, std::string name, std::int32_t origin, const Body& body,
               std::vector<std::int32_t> ranks, DType dtype);

  // In that round the rank that holds it reads `box` of `held` at a place of its call: as the body counts its reads.
  // It waits for the box, or, where `fine` is false, for all that is held. `held` outlives this.
  void give(std::size_t round, std::size_t place, Held& held, const Box& box, bool fine);
  // In that round the rank that holds it writes `box` of `held`, from a place of its call.
  void take(std::size_t round, std::size_t place, Held& held, const Box& box);
  // Adds the tasks of all rounds to the graph.
  void add();

 private:
  struct Part {
    Held* held = nullptr;  // null: nothing
    Box box{};
    bool fine = true;
  };
  struct Call {
    std::vector<Part> given;
    std::vector<Part> taken;
  };
  using Round = std::vector<Call>;  // by rank that calls

  Call& call_of(std::size_t round, std::int32_t rank);
  // Contiguous memory of the rank with that number.
  Access room_for(std::size_t caller, std::int64_t elements);
  bool needs_packing(const Part& part) const;
  Access pack(std::size_t caller, const Part& part, std::vector<TaskId>& packing);
  // From element `at` of `room` on.
  void unpack(TaskId call, const Part& part, BufferId room, std::int64_t at);
  std::vector<Access> reads_of(std::size_t caller, const std::vector<Part>& given, std::vector<TaskId>& packing);
  std::vector<Access> writes_of(std::size_t caller, const std::vector<Part>& taken);
  void add_round(const Round& round);

  TaskGraph& graph_;
  std::string name_;
  std::int32_t origin_;
  Body body_;
  std::vector<std::int32_t> ranks_;
  DType dtype_;
  std::vector<Round> rounds_;
  std::vector<BufferId> room_;  // by rank that calls; -1 where nothing was packed
};

}  // namespace tileway
