// Collectives, tile by tile. All of them cut the whole tensor by one grid, so that every rank names a tile alike.
//
// A movement (all_gather, all_to_all, broadcast, send) puts each tile straight from where its owner holds it into the
// result on every rank that is to hold it. A reduction (all_reduce, reduce_scatter, reduce) puts each partial into a
// staging slot on the rank that reduces the tile, which adds the slots in rank order; an all_reduce in two shots then
// puts the tile to everyone. A slot belongs to one sender and one tile, and is written once a run. What a collective
// library does instead is in lower_collective.cpp.
#include <fmt/format.h>

#include <algorithm>

#include "schedule/lowering.hpp"
#include "tileway/error.hpp"

namespace tileway {

int owner_of(const Box& box, const TensorType& type) {
  const auto dim = static_cast<std::size_t>(type.placement.dim);
  std::int64_t end = 0;
  for (std::size_t member = 0; member < type.placement.sizes.size(); ++member) {
    end += type.placement.sizes[member];
    if (box.start[dim] < end) return static_cast<int>(member);
  }
  TW_ASSERT(!"a tile lies in one shard");
  return -1;
}

Tiling Lowering::cut_at_shards(int index, const Shape& tile) const {
  const Op& op = op_at(index);
  const Shape& whole = op.type.shape;
  std::vector<std::vector<std::int64_t>> fixed(whole.size());
  for (const TensorType* type : {&op_at(op.operands[0]).type, &op.type}) {
    if (!type->placement.is_shard()) continue;
    for (int m = 0; m < members_of(*type); ++m) fixed[type->placement.dim].push_back(type->shard_start(m));
  }
  Tiling tiling;
  for (std::size_t d = 0; d < whole.size(); ++d) tiling.cuts.push_back(cut_dimension(whole[d], tile[d], fixed[d]));
  return tiling;
}

Tiling Lowering::communication_tiling(int index) const {
  const Op& op = op_at(index);
  const int members = members_of(op_at(op.operands[0]).type);
  Shape tile = default_communication_tile(op.type.shape, members, graph_.plan.topology);
  if (const Shape* chosen = schedule_.tile_of(index)) tile = *chosen;
  if (!tile.empty() && tile[0] > 0) tile[0] *= schedule_.group_of(index);
  return cut_at_shards(index, tile);
}

void Lowering::lower_communication(int index, std::int32_t origin) {
  const Op& op = op_at(index);
  const Tiling whole = by_library(index) ? collective_tiling(index) : communication_tiling(index);
  for (int member = 0; member < members_of(op.type); ++member) {
    held_[index].push_back(
        new_held(op.type, member, fmt::format("%{}", index), Buffer::Role::scratch, localised(whole, op.type, member)));
  }
  if (by_library(index)) {
    lower_collective(index, origin, whole);
  } else if (reduces(op)) {
    lower_reduction(index, origin, whole);
  } else {
    for_each_move(index, whole,
                  [&](const Box& box, int sender, int receiver) { move(index, origin, box, sender, receiver); });
  }
}

void Lowering::for_each_move(int index, const Tiling& whole,
                             const std::function<void(const Box& box, int sender, int receiver)>& visit) const {
  const Op& op = op_at(index);
  const TensorType& from = op_at(op.operands[0]).type;
  for (std::size_t t = 0; t < whole.count(); ++t) {
    const Box box = whole.box(t);
    if (op.kind == OpKind::send) {
      for (int m = 0; m < members_of(from); ++m) {
        if (!from.placement.is_shard() || owner_of(box, from) == m) visit(box, m, m);
      }
      continue;
    }
    const int sender = owner_of(box, from);
    for (int m = 0; m < members_of(op.type); ++m) {
      if (!op.type.placement.is_shard() || owner_of(box, op.type) == m) visit(box, sender, m);
    }
  }
}

void Lowering::move(int index, std::int32_t origin, const Box& box, int sender, int receiver) {
  const Op& op = op_at(index);
  const int source = op.operands[0];
  const Box from_box = localised(box, op_at(source).type, sender);
  const Box to_box = localised(box, op.type, receiver);
  Held& held_from = held_[source][sender];
  Held& held_to = held_[index][receiver];
  // What stays at home does not queue behind what is sent.
  const Engine engine = held_from.rank == held_to.rank ? Engine::compute : mover(index);
  const auto move_piece = [&](const Box& from_piece, const Box& to_piece) {
    const TaskId task = graph_.add_task(engine, held_from.rank, origin, {.kind = Body::Kind::copy},
                                        {reading(held_from, from_piece)}, {writing(held_to.buffer, to_piece)});
    graph_.moving[task] = true;
    graph_.depend(task, held_from, from_piece, fine(source, index));
    held_to.written(to_piece, task);
  };
  if (engine != Engine::compute) return move_piece(from_box, to_box);
  const std::vector<Box> from_pieces = lane_pieces(from_box, graph_.plan.topology);
  const std::vector<Box> to_pieces = lane_pieces(to_box, graph_.plan.topology);
  for (std::size_t i = 0; i < from_pieces.size(); ++i) move_piece(from_pieces[i], to_pieces[i]);
}

void Lowering::lower_reduction(int index, std::int32_t origin, const Tiling& whole) {
  const Op& op = op_at(index);
  const int source = op.operands[0];
  const TensorType& from = op_at(source).type;
  const int members = members_of(from);
  const bool everyone = !op.type.placement.is_shard() && schedule_.all_reduce_of(index) == AllReduce::one_shot;
  // Who reduces tile t. In two shots of an all_reduce, contiguous runs of tiles.
  const auto reducers = [&](std::size_t t) {
    std::vector<int> list;
    if (everyone) {
      for (int m = 0; m < members; ++m) list.push_back(m);
    } else if (op.type.placement.is_shard()) {
      list.push_back(owner_of(whole.box(t), op.type));
    } else {
      list.push_back(static_cast<int>(t * static_cast<std::size_t>(members) / whole.count()));
    }
    return list;
  };
  // Staging on each reducer: a row a sender other than itself, tiles packed one after the other.
  std::vector<std::int64_t> staged(members, 0);
  std::vector<std::vector<std::int64_t>> offset(members, std::vector<std::int64_t>(whole.count(), 0));
  for (std::size_t t = 0; t < whole.count(); ++t) {
    for (int reducer : reducers(t)) {
      offset[reducer][t] = staged[reducer];
      staged[reducer] += whole.box(t).volume();
    }
  }
  std::vector<BufferId> staging(members, -1);
  for (int m = 0; m < members && members > 1; ++m) {
    if (staged[m] == 0) continue;
    staging[m] = graph_.add_buffer({.name = fmt::format("%{} staging", index),
                                    .rank = ranks_of(from)[m],
                                    .dtype = from.dtype,
                                    .shape = {members - 1, staged[m]}});
  }
  const Body copy{.kind = Body::Kind::copy};
  const Body reduce{.kind = Body::Kind::reduce_ranks, .op = from.placement.op};
  for (std::size_t t = 0; t < whole.count(); ++t) {
    const Box box = whole.box(t);
    for (int reducer : reducers(t)) {
      Held& result = held_[index][reducer];
      Join arrived{result.rank, {}, {}};
      for (int m = 0; m < members; ++m) {
        if (m == reducer) continue;
        Held& partial = held_[source][m];
        const Box slot{{m < reducer ? m : m - 1, offset[reducer][t]}, {1, box.volume()}};
        const TaskId put = graph_.add_task(mover(index), partial.rank, origin, copy, {reading(partial, box)},
                                           {writing(staging[reducer], slot)});
        graph_.moving[put] = true;
        graph_.depend(put, partial, box, fine(source, index));
        arrived.producers.push_back(put);
      }
      std::int64_t before = 0;  // elements of the tile in the pieces so far
      for (const Box& piece : lane_pieces(box, graph_.plan.topology)) {
        std::vector<Access> reads;
        for (int m = 0; m < members; ++m) {
          if (m == reducer) {
            reads.push_back(reading(held_[source][m], piece));
          } else {
            reads.push_back({.buffer = staging[reducer],
                             .box = {{m < reducer ? m : m - 1, offset[reducer][t] + before}, {1, piece.volume()}}});
          }
        }
        before += piece.volume();
        const Box own_piece = localised(piece, op.type, reducer);
        const TaskId task = graph_.add_task(Engine::compute, result.rank, origin, reduce, std::move(reads),
                                            {writing(result.buffer, own_piece)});
        graph_.depend(task, held_[source][reducer], piece, fine(source, index));
        arrived.consumers.push_back(task);
        result.written(own_piece, task);
      }
      graph_.add_join(std::move(arrived));
      if (everyone || op.type.placement.is_shard()) continue;
      for (int m = 0; m < members; ++m) {
        if (m == reducer) continue;
        Held& peer = held_[index][m];
        const TaskId put = graph_.add_task(mover(index), result.rank, origin, copy, {reading(result, box)},
                                           {writing(peer.buffer, box)});
        graph_.moving[put] = true;
        graph_.depend(put, result, box, true);
        peer.written(box, put);
      }
    }
  }
}

}  // namespace tileway
