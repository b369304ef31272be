// Collectives, tile by tile. All of them cut the whole tensor by one grid, so that every rank names a tile alike.
//
// A movement (all_gather, all_to_all, broadcast, send) puts each tile straight from where its owner holds it into the
// result on every rank that is to hold it. A reduction (all_reduce, reduce_scatter, reduce) puts each partial into a
// staging buffer of its own on the rank that reduces the tile, which adds them in rank order; an all_reduce in two
// shots then puts the tile to everyone. What a collective
// library does instead is in lower_collective.cpp, and which tiles the tasks that make them bring to their place
// themselves in lower_fused.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

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

namespace {

// The parts of a tile that one task each moves: an engine's operation takes all of it.
std::vector<Box> moved_parts(const Box& tile, Engine engine, const Topology& topology) {
  return engine == Engine::compute ? mover_pieces(tile, topology) : std::vector<Box>{tile};
}

}  // namespace

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

std::int64_t Lowering::rows_sent_together(int index) const {
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (int c = index + 1; c < static_cast<int>(program_.ops().size()); ++c) {
    const bool by_producer = brought_by_producer(c, std::numeric_limits<int>::max());
    if (!is_communication(op_at(c).kind) || !fine(index, c) || by_producer) continue;
    const Tiling tiling = by_library(c) ? collective_tiling(c) : communication_tiling(c);
    const std::size_t dims = tiling.cuts.size();
    if (dims < 2 || tiling.count() == 0) continue;
    least = std::min(least, tiling.box(0).extent[dims - 2]);
  }
  return least;
}

void Lowering::lower_communication(int index, std::int32_t origin) {
  const Op& op = op_at(index);
  Tiling whole = by_library(index) ? collective_tiling(index) : communication_tiling(index);
  if (is_fused(index)) whole = fused_tiling(index, whole);
  for (int member = 0; member < members_of(op.type); ++member) {
    held_[index].push_back(
        new_held(op.type, member, fmt::format("%{}", index), Buffer::Role::scratch, localised(whole, op.type, member)));
  }
  if (by_library(index)) {
    lower_collective(index, origin, whole);
  } else if (reduces(op)) {
    lower_reduction(index, origin, whole);
  } else {
    std::map<std::pair<int, int>, int> left;  // tiles from one member to another
    for_each_move(index, whole, [&](const Box&, int sender, int receiver) { ++left[{sender, receiver}]; });
    for_each_move(index, whole, [&](const Box& box, int sender, int receiver) {
      if (brought_by_producer(index, left[{sender, receiver}]--)) {
        move_by_producer(index, box, sender, receiver);
      } else {
        move(index, origin, box, sender, receiver);
      }
    });
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
  const std::vector<Box> from_parts = moved_parts(from_box, engine, graph_.plan.topology);
  const std::vector<Box> to_parts = moved_parts(to_box, engine, graph_.plan.topology);
  for (std::size_t i = 0; i < from_parts.size(); ++i) {
    const TaskId task = graph_.add_task(engine, held_from.rank, origin, {.kind = Body::Kind::copy},
                                        {reading(held_from, from_parts[i])}, {writing(held_to.buffer, to_parts[i])});
    graph_.moving[task] = true;
    graph_.depend(task, held_from, from_parts[i], fine(source, index));
    held_to.written(to_parts[i], task);
  }
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
  // Staging on each reducer for each other member: all that it reduces, where it lies in the tensor.
  std::vector<Box> reduced(members);
  std::vector<int> tiles(members, 0);
  for (std::size_t t = 0; t < whole.count(); ++t) {
    for (int reducer : reducers(t))
      reduced[reducer] = tiles[reducer]++ == 0 ? whole.box(t) : hull(reduced[reducer], whole.box(t));
  }
  std::vector<std::vector<BufferId>> staging(members, std::vector<BufferId>(members, -1));
  for (int to = 0; to < members; ++to) {
    for (int m = 0; m < members && tiles[to] > 0; ++m) {
      if (m == to) continue;
      staging[to][m] = graph_.add_buffer({.name = fmt::format("%{} from {}", index, ranks_of(from)[m]),
                                          .rank = ranks_of(from)[to],
                                          .dtype = from.dtype,
                                          .shape = reduced[to].extent});
    }
  }
  const Body copy{.kind = Body::Kind::copy};
  const Body reduce{.kind = Body::Kind::reduce_ranks, .op = from.placement.op};
  std::vector<int> done(members, 0);
  for (std::size_t t = 0; t < whole.count(); ++t) {
    const Box box = whole.box(t);
    for (int reducer : reducers(t)) {
      const auto staged = [&](int m, const Box& part) {
        return Access{.buffer = staging[reducer][m], .box = moved(part, reduced[reducer].start)};
      };
      const bool direct = brought_by_producer(index, tiles[reducer] - done[reducer]++);
      Held& result = held_[index][reducer];
      Join arrived{result.rank, {}, {}};
      for (int m = 0; m < members; ++m) {
        if (m == reducer) continue;
        Held& partial = held_[source][m];
        if (direct) {
          redirect(partial, box, staging[reducer][m], reduced[reducer].start, arrived.producers);
          continue;
        }
        for (const Box& part : moved_parts(box, mover(index), graph_.plan.topology)) {
          const TaskId put = graph_.add_task(mover(index), partial.rank, origin, copy, {reading(partial, part)},
                                             {writing(staging[reducer][m], staged(m, part).box)});
          graph_.moving[put] = true;
          graph_.depend(put, partial, part, fine(source, index));
          arrived.producers.push_back(put);
        }
      }
      const bool to_all = !everyone && !op.type.placement.is_shard();
      for (const Box& piece : lane_pieces(box, graph_.plan.topology)) {
        std::vector<Access> reads;
        for (int m = 0; m < members; ++m)
          reads.push_back(m == reducer ? reading(held_[source][m], piece) : staged(m, piece));
        const Box own_piece = localised(piece, op.type, reducer);
        std::vector<Access> writes{writing(result.buffer, own_piece)};
        for (int m = 0; m < members && to_all && direct; ++m) {
          if (m != reducer) writes.push_back(writing(held_[index][m].buffer, piece));
        }
        const TaskId task =
            graph_.add_task(Engine::compute, result.rank, origin, reduce, std::move(reads), std::move(writes));
        graph_.depend(task, held_[source][reducer], piece, fine(source, index));
        arrived.consumers.push_back(task);
        result.written(own_piece, task);
        if (!to_all || !direct) continue;
        for (int m = 0; m < members; ++m) {
          if (m != reducer) held_[index][m].written(piece, task);
        }
      }
      graph_.add_join(std::move(arrived));
      if (!to_all || direct) continue;
      for (int m = 0; m < members; ++m) {
        if (m == reducer) continue;
        Held& peer = held_[index][m];
        for (const Box& part : moved_parts(box, mover(index), graph_.plan.topology)) {
          const TaskId put = graph_.add_task(mover(index), result.rank, origin, copy, {reading(result, part)},
                                             {writing(peer.buffer, part)});
          graph_.moving[put] = true;
          graph_.depend(put, result, part, true);
          peer.written(part, put);
        }
      }
    }
  }
}

}  // namespace tileway
