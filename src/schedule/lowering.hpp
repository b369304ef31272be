// The state of one lowering: which rank holds which tensor where, and the tasks so far.
#pragma once

#include <vector>

#include "schedule/graph.hpp"
#include "tileway/schedule.hpp"

namespace tileway {

class Lowering {
 public:
  Lowering(const Program& program, const Schedule& schedule, const Topology& topology);
  Lowered run();

 private:
  // held_[op][member] of every operation so far.
  std::vector<std::vector<Held>> held_;
  const Program& program_;
  const Schedule& schedule_;
  TaskGraph graph_;

  const Op& op_at(int index) const { return program_.ops()[index]; }
  const std::vector<int>& ranks_of(const TensorType& type) const { return program_.groups()[type.group]; }
  int members_of(const TensorType& type) const { return static_cast<int>(ranks_of(type).size()); }
  // Whether a collective library does it. One rank has nobody to call.
  bool by_library(int index) const {
    return schedule_.engine_of(index) == Engine::collective && members_of(op_at(index).type) > 1;
  }
  // What moves the tiles of a communication that no library does.
  Engine mover(int index) const {
    const bool lanes = schedule_.engine_of(index) == Engine::compute || graph_.plan.topology.copy == 0;
    return lanes ? Engine::compute : Engine::copy;
  }
  // What computes the tiles of a computation.
  Engine computer(int index) const {
    return schedule_.engine_of(index) == Engine::library ? Engine::library : Engine::compute;
  }
  bool fine(int producer, int consumer) const { return schedule_.overlaps(producer, consumer); }

  void lower_op(int index, std::int32_t origin);
  void bind(int index);
  // A tensor on one rank, cut by `tiling`, in new memory; or the memory of an input or constant (empty tiling).
  Held new_held(const TensorType& type, int member, const std::string& name, Buffer::Role role, Tiling tiling);

  // lower_compute.cpp
  void lower_compute(int index, std::int32_t origin);
  Tiling compute_tiling(int index, int member) const;
  Body body_of(const Op& op, int member) const;

  // lower_communication.cpp
  void lower_communication(int index, std::int32_t origin);
  Tiling communication_tiling(int index) const;
  void lower_reduction(int index, std::int32_t origin, const Tiling& whole);
  void lower_movement(int index, std::int32_t origin, const Tiling& whole);
  // lower_collective.cpp
  Tiling collective_tiling(int index) const;
  void lower_collective(int index, std::int32_t origin, const Tiling& whole);
  // lower_dynamic.cpp
  void lower_all_to_all_v(int index, std::int32_t origin);
};

Access reading(const Held& held, Box box);
Access writing(BufferId buffer, Box box);

// The part of a box of the whole tensor that a member holds, in the member's coordinates; empty where it holds none.
Box localised(const Box& box, const TensorType& type, int member);
// What a member holds of a grid over the whole tensor.
Tiling localised(const Tiling& tiling, const TensorType& type, int member);

}  // namespace tileway
