// A communication by a collective library, in rounds: one call a tile of an all_reduce, and otherwise one for the next
// tile of everything that goes from one member to another, so that all links are in use. Each member hands over its own
// memory and nobody touches another's, so there is nothing to acknowledge between runs.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "schedule/library_calls.hpp"
#include "schedule/lowering.hpp"
#include "tileway/error.hpp"

namespace tileway {
namespace {

// Makes inner dimensions whole where a tile does not take a single element of an outer one.
void make_contiguous(Shape& tile, const Shape& whole) {
  bool all = false;
  for (std::size_t d = 0; d < whole.size(); ++d) {
    if (all) tile[d] = whole[d];
    all = all || tile[d] > 1;
  }
}

// `count` tiles together, along the innermost dimension that is cut and then along those around it.
void take_together(Shape& tile, const Shape& whole, std::int64_t count) {
  for (std::size_t d = whole.size(); d-- > 0 && count > 1;) {
    if (tile[d] >= whole[d]) continue;
    const std::int64_t extent = tile[d] * count;
    tile[d] = std::min(extent, whole[d]);
    count = extent / whole[d];
  }
}

}  // namespace

std::vector<std::int32_t> Lowering::callers(int index) const {
  std::vector<std::int32_t> ranks = ranks_of(op_at(index).type);
  const std::vector<std::int32_t>& from = ranks_of(op_at(op_at(index).operands[0]).type);
  ranks.insert(ranks.end(), from.begin(), from.end());
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

Tiling Lowering::collective_tiling(int index) const {
  const Op& op = op_at(index);
  const Shape& whole = op.type.shape;
  Topology coarse = graph_.plan.topology;
  coarse.copy = std::max(1, coarse.copy);  // a call is worth as much as an operation of a copy engine
  Shape tile = default_communication_tile(whole, members_of(op.type), coarse);
  if (const Shape* chosen = schedule_.tile_of(index)) {
    tile = *chosen;
    for (std::size_t d = 0; d < whole.size(); ++d) tile[d] = tile[d] == 0 ? whole[d] : std::min(tile[d], whole[d]);
    TW_REQUIRE(op.kind != OpKind::all_reduce || contiguous(Box{Dims::filled(whole.size(), 0), tile}, whole),
               ErrorKind::invalid, .where = fmt::format("tile of {} at {}", name_of(op.kind), op.where),
               .what = "the collective engine takes contiguous memory",
               .expected = "extents that cut one dimension and take all of those inside it",
               .got = fmt::format("{} of {}", to_string(tile), to_string(whole)));
  } else {
    make_contiguous(tile, whole);
  }
  take_together(tile, whole, schedule_.group_of(index));
  return cut_at_shards(index, tile);
}

void Lowering::lower_collective(int index, std::int32_t origin, const Tiling& whole) {
  const Op& op = op_at(index);
  const int source = op.operands[0];
  const TensorType& from = op_at(source).type;
  Body body{.kind = Body::Kind::exchange};
  if (reduces(op)) {
    body.kind = op.type.placement.is_shard() ? Body::Kind::reduce_scatter : Body::Kind::all_reduce;
    body.op = from.placement.op;
  }
  const std::vector<std::int32_t> ranks = callers(index);
  const auto place_of = [&](std::int32_t rank) {
    return static_cast<std::size_t>(std::lower_bound(ranks.begin(), ranks.end(), rank) - ranks.begin());
  };
  const bool wait_for_tiles = fine(source, index);
  LibraryCalls calls(graph_, fmt::format("%{}", index), origin, body, ranks, from.dtype);
  std::map<std::pair<int, int>, std::size_t> rounds;  // so far, of what goes from one member to another
  if (body.kind == Body::Kind::exchange) {
    for_each_move(index, whole, [&](const Box& box, int sender, int receiver) {
      Held& held_from = held_[source][sender];
      Held& held_to = held_[index][receiver];
      if (held_from.rank == held_to.rank) {
        move(index, origin, box, sender, receiver);
        return;
      }
      const std::size_t round = rounds[{sender, receiver}]++;
      calls.give(round, place_of(held_to.rank), held_from, localised(box, from, sender), wait_for_tiles);
      calls.take(round, place_of(held_from.rank), held_to, localised(box, op.type, receiver));
    });
  } else {
    for (std::size_t t = 0; t < whole.count(); ++t) {
      const Box box = whole.box(t);
      const bool scatters = body.kind == Body::Kind::reduce_scatter;
      const int owner = scatters ? owner_of(box, op.type) : 0;
      const std::size_t round = rounds[{owner, owner}]++;
      for (int m = 0; m < members_of(from); ++m) {
        calls.give(round, static_cast<std::size_t>(owner), held_[source][m], box, wait_for_tiles);
        if (!scatters || m == owner) calls.take(round, 0, held_[index][m], localised(box, op.type, m));
      }
    }
  }
  calls.add();
}

}  // namespace tileway
