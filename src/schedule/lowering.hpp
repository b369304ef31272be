// The state of one lowering: which rank holds which tensor where, and the tasks so far.
#pragma once

#include <functional>
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
    return schedule_.engine_of(index) == Engine::collective && callers(index).size() > 1;
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
  // The operations that the tasks of one do: a product and the steps behind it, or just the one.
  std::vector<int> chain_of(int index) const;
  Tiling compute_tiling(int index, int member) const;
  // In which order they are taken; `first` of the chain.
  std::vector<std::size_t> order_of_cells(int index, int first, const Tiling& tiling) const;
  Body body_of(const Op& op, int member) const;
  // As many steps as operations behind the first.
  std::vector<Step> epilogue_of(const std::vector<int>& chain) const;

  // lower_communication.cpp
  void lower_communication(int index, std::int32_t origin);
  Tiling communication_tiling(int index) const;
  // The least rows of an operation's result that a communication sends at once before all of it is there.
  std::int64_t rows_sent_together(int index) const;
  // The whole tensor by tiles that start anew where a member's part begins, of the operand or of the result.
  Tiling cut_at_shards(int index, const Shape& tile) const;
  // Whether it adds up what the members hold.
  bool reduces(const Op& op) const {
    return op_at(op.operands[0]).type.placement.is_partial() && op.kind != OpKind::send;
  }
  // Calls `visit` with each tile of the whole tensor that a movement takes from one member to another, or to itself.
  void for_each_move(int index, const Tiling& whole,
                     const std::function<void(const Box& box, int sender, int receiver)>& visit) const;
  // Copies such a tile.
  void move(int index, std::int32_t origin, const Box& box, int sender, int receiver);
  void lower_reduction(int index, std::int32_t origin, const Tiling& whole);
  // lower_fused.cpp
  bool is_fused(int index) const { return schedule_.fused_tiles_of(index) > 0; }
  // Whether the producer's tasks bring a tile to its destination themselves, when it and the tiles after it for that
  // destination are so many.
  bool brought_by_producer(int index, int left) const { return left <= schedule_.fused_tiles_of(index); }
  // The producer's tiles; or, if only the last tiles are brought by it, `coarse` with its cuts where tiles end.
  Tiling fused_tiling(int index, const Tiling& coarse) const;
  // Has the tasks that write a box of what a member holds write it elsewhere, where that buffer begins at `start` in
  // the member's coordinates. Appends them.
  void redirect(Held& held, const Box& box, BufferId to, const Dims& start, std::vector<TaskId>& tasks);
  // Brings a tile of a movement to where it goes, home included.
  void move_by_producer(int index, const Box& box, int sender, int receiver);
  // lower_collective.cpp
  // The ranks that hold what an operation takes or gives, ascending.
  std::vector<std::int32_t> callers(int index) const;
  Tiling collective_tiling(int index) const;
  void lower_collective(int index, std::int32_t origin, const Tiling& whole);
  // lower_dynamic.cpp
  void lower_all_to_all_v(int index, std::int32_t origin);
};

Access reading(const Held& held, Box box);
Access writing(BufferId buffer, Box box);

// The member that holds a box of the whole tensor, which lies within one shard.
int owner_of(const Box& box, const TensorType& type);
// A box in coordinates that begin at `start`.
Box moved(Box box, const Dims& start);
// The smallest box around both.
Box hull(const Box& a, const Box& b);
// The part of a box of the whole tensor that a member holds, in the member's coordinates; empty where it holds none.
Box localised(const Box& box, const TensorType& type, int member);
// What a member holds of a grid over the whole tensor.
Tiling localised(const Tiling& tiling, const TensorType& type, int member);

}  // namespace tileway
