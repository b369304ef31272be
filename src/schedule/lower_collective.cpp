// An all_reduce by a collective library: one call a tile, which all members make. Each reads its own partial and writes
// its own result, so no rank writes another's memory, and there is nothing to acknowledge between runs. The library
// takes contiguous memory only.
#include <fmt/format.h>

#include <algorithm>

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

Tiling Lowering::collective_tiling(int index) const {
  const Op& op = op_at(index);
  const Shape& whole = op.type.shape;
  Topology coarse = graph_.plan.topology;
  coarse.copy = std::max(1, coarse.copy);  // a call is worth as much as an operation of a copy engine
  Shape tile = default_communication_tile(whole, members_of(op.type), coarse);
  if (const Shape* chosen = schedule_.tile_of(index)) {
    tile = *chosen;
    for (std::size_t d = 0; d < whole.size(); ++d) tile[d] = tile[d] == 0 ? whole[d] : std::min(tile[d], whole[d]);
    TW_REQUIRE(contiguous(Box{Dims::filled(whole.size(), 0), tile}, whole), ErrorKind::invalid,
               .where = fmt::format("tile of {} at {}", name_of(op.kind), op.where),
               .what = "the collective engine takes contiguous memory",
               .expected = "extents that cut one dimension and take all of those inside it",
               .got = fmt::format("{} of {}", to_string(tile), to_string(whole)));
  } else {
    make_contiguous(tile, whole);
  }
  take_together(tile, whole, schedule_.group_of(index));
  Tiling tiling;
  for (std::size_t d = 0; d < whole.size(); ++d) tiling.cuts.push_back(cut_dimension(whole[d], tile[d], {}));
  return tiling;
}

void Lowering::lower_collective(int index, std::int32_t origin, const Tiling& whole) {
  const int source = op_at(index).operands[0];
  const TensorType& from = op_at(source).type;
  const Body body{.kind = Body::Kind::all_reduce, .op = from.placement.op};
  for (std::size_t t = 0; t < whole.count(); ++t) {
    const Box box = whole.box(t);
    std::vector<TaskId> calls;
    for (int m = 0; m < members_of(from); ++m) {
      Held& partial = held_[source][m];
      Held& result = held_[index][m];
      const TaskId call = graph_.add_task(Engine::collective, result.rank, origin, body, {reading(partial, box)},
                                          {writing(result.buffer, box)});
      graph_.moving[call] = true;
      graph_.depend(call, partial, box, fine(source, index));
      result.tiling.overlapping(box, [&](std::size_t cell) { result.writers[cell].push_back(call); });
      calls.push_back(call);
    }
    graph_.add_joint(calls);
  }
}

}  // namespace tileway
