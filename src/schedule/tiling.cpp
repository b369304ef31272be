#include "schedule/tiling.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "tileway/error.hpp"

namespace tileway {
namespace {

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// Resident thread blocks are many and want tiles of a fixed size; CPU threads are few and want few tiles.
constexpr std::int64_t kBlockRows = 128;
constexpr std::int64_t kBlockColumns = 256;
constexpr std::int64_t kBlockElements = kBlockRows * kBlockColumns;
// Of smaller ones too, where there is not enough for all blocks.
constexpr std::int64_t kLeastBlockColumns = 64;
constexpr std::int64_t kLeastBlockElements = 2048;
// What one of a few blocks should have to move at once, so that it moves for longer than it takes to wait and to
// notify.
constexpr std::int64_t kMoverElements = 4 * kBlockElements;

// As many pieces as blocks of a usual size would take, but no more than `most`.
std::vector<Box> pieces_of(const Box& box, const Topology& topology, std::int64_t most) {
  std::size_t d = 0;
  while (d < box.extent.size() && box.extent[d] == 1) ++d;
  if (!topology.has_blocks() || d == box.extent.size() || box.empty()) return {box};
  const std::int64_t blocks = (box.volume() + kBlockElements / 2) / kBlockElements;
  const std::int64_t step = ceil_div(box.extent[d], std::clamp<std::int64_t>(blocks, 1, most));
  std::vector<Box> pieces;
  for (std::int64_t begin = 0; begin < box.extent[d]; begin += step) {
    pieces.push_back(box);
    pieces.back().start[d] += begin;
    pieces.back().extent[d] = std::min(step, box.extent[d] - begin);
  }
  return pieces;
}

}  // namespace

std::size_t Tiling::count() const {
  std::size_t cells = 1;
  for (const auto& boundaries : cuts) cells *= boundaries.size() - 1;
  return cells;
}

Box Tiling::box(std::size_t cell) const {
  Box box{Dims::filled(cuts.size(), 0), Dims::filled(cuts.size(), 0)};
  for (std::size_t d = cuts.size(); d-- > 0;) {
    const std::size_t cells = cuts[d].size() - 1;
    const std::size_t at = cell % cells;
    cell /= cells;
    box.start[d] = cuts[d][at];
    box.extent[d] = cuts[d][at + 1] - cuts[d][at];
  }
  return box;
}

void Tiling::overlapping(const Box& box, const std::function<void(std::size_t)>& visit) const {
  if (box.empty() || count() == 0) return;
  std::vector<std::pair<std::size_t, std::size_t>> ranges;  // first cell, one past the last
  for (std::size_t d = 0; d < cuts.size(); ++d) {
    const auto& boundaries = cuts[d];
    const auto first = std::upper_bound(boundaries.begin(), boundaries.end(), box.start[d]) - boundaries.begin() - 1;
    const auto last =
        std::lower_bound(boundaries.begin(), boundaries.end(), box.start[d] + box.extent[d]) - boundaries.begin();
    ranges.emplace_back(first, last);
  }
  std::vector<std::size_t> at(cuts.size());
  for (std::size_t d = 0; d < cuts.size(); ++d) at[d] = ranges[d].first;
  while (true) {
    std::size_t cell = 0;
    for (std::size_t d = 0; d < cuts.size(); ++d) cell = cell * (cuts[d].size() - 1) + at[d];
    visit(cell);
    std::size_t d = cuts.size();
    while (d-- > 0) {
      if (++at[d] < ranges[d].second) break;
      at[d] = ranges[d].first;
      if (d == 0) return;
    }
    if (cuts.empty()) return;
  }
}

std::vector<std::size_t> product_order(const Tiling& tiling, std::int64_t most_rows, const Topology& topology) {
  const std::size_t cells = tiling.count();
  std::vector<std::size_t> order(cells);
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (!topology.has_blocks() || cells == 0) return order;
  const std::size_t dims = tiling.cuts.size();
  const std::size_t rows = tiling.cuts[dims - 2].size() - 1;
  const std::size_t columns = tiling.cuts[dims - 1].size() - 1;
  const Dims tile = tiling.box(0).extent;
  const double square = std::sqrt(static_cast<double>(topology.lanes) * static_cast<double>(tile[dims - 1]) /
                                  static_cast<double>(tile[dims - 2]));
  const auto height = static_cast<std::size_t>(
      std::max<std::int64_t>(1, std::min<std::int64_t>(std::lround(square), most_rows / tile[dims - 2])));
  auto next = order.begin();
  for (std::size_t matrix = 0; matrix < cells; matrix += rows * columns) {
    for (std::size_t panel = 0; panel < rows; panel += height) {
      for (std::size_t column = 0; column < columns; ++column) {
        for (std::size_t row = panel; row < std::min(panel + height, rows); ++row)
          *next++ = matrix + row * columns + column;
      }
    }
  }
  return order;
}

std::vector<std::int64_t> cut_dimension(std::int64_t extent, std::int64_t step,
                                        const std::vector<std::int64_t>& fixed) {
  std::vector<std::int64_t> edges = fixed;
  edges.push_back(extent);
  std::sort(edges.begin(), edges.end());
  std::vector<std::int64_t> cuts{0};
  for (std::int64_t edge : edges) {
    if (edge <= cuts.back() || edge > extent) continue;
    if (step > 0) {
      for (std::int64_t at = cuts.back() + step; at < edge; at += step) cuts.push_back(at);
    }
    cuts.push_back(edge);
  }
  return cuts;
}

Shape cut_into(const Shape& shape, std::int64_t pieces, const Shape& least) {
  Shape tile = shape;
  for (std::size_t d = 0; d < shape.size() && pieces > 1; ++d) {
    if (shape[d] <= 1) continue;
    const std::int64_t wanted =
        std::min(pieces, std::max<std::int64_t>(1, shape[d] / std::max<std::int64_t>(1, least[d])));
    tile[d] = ceil_div(shape[d], wanted);
    pieces = ceil_div(pieces, ceil_div(shape[d], tile[d]));
  }
  return tile;
}

namespace {

// Of a product on thread blocks: what tensor cores multiply at once, neither more, for the rest of a second one costs
// as much as all of it, nor so that a tile begins where a row of sixteen bytes does not. Narrower ones where those
// leave lanes without any, as long as each lane gets one at most. Small matrices of a batch go together.
Shape block_tile(const Shape& local, int lanes) {
  const std::size_t dims = local.size();
  const std::int64_t elements = volume(local);
  const std::int64_t rows = std::clamp<std::int64_t>(local[dims - 2], 1, kBlockRows);
  std::int64_t columns = std::clamp<std::int64_t>(local[dims - 1], 1, kBlockColumns);
  Shape batch = local;
  batch[dims - 2] = batch[dims - 1] = 1;
  const auto tiles = [&] { return ceil_div(local[dims - 2], rows) * ceil_div(local[dims - 1], columns); };
  while (columns > kLeastBlockColumns && 2 * volume(batch) * tiles() <= lanes)
    columns = ceil_div(columns / 2, kLeastBlockColumns) * kLeastBlockColumns;
  const std::int64_t most = std::max<std::int64_t>(lanes, ceil_div(elements, kBlockElements));
  Shape tile =
      cut_into(batch, std::max<std::int64_t>(1, most / std::max<std::int64_t>(1, tiles())), Shape::filled(dims, 1));
  tile[dims - 2] = rows;
  tile[dims - 1] = columns;
  return tile;
}

}  // namespace

std::vector<Box> lane_pieces(const Box& box, const Topology& topology) {
  return pieces_of(box, topology, std::numeric_limits<std::int64_t>::max());
}

std::vector<Box> mover_pieces(const Box& box, const Topology& topology) {
  if (topology.movers == 0) return lane_pieces(box, topology);
  return pieces_of(box, topology, topology.movers);
}

bool keeps_whole(const Op& op, const Program& program, int member, std::size_t dim) {
  const Shape result = op.type.local_shape(member);
  switch (op.kind) {
    case OpKind::softmax:
    case OpKind::layer_norm:
    case OpKind::rms_norm:
      return dim + 1 == result.size();
    case OpKind::reshape: {
      // Only leading dimensions that the operand has too can be cut; behind them the elements are regrouped.
      const Shape from = program.ops()[op.operands[0]].type.local_shape(member);
      for (std::size_t d = 0; d <= dim; ++d) {
        if (d >= from.size() || from[d] != result[d]) return true;
      }
      return false;
    }
    default:
      return false;
  }
}

Shape default_tile(const Op& op, const Shape& local, int members, const Topology& topology) {
  const std::size_t dims = local.size();
  const bool product = op.kind == OpKind::matmul || op.kind == OpKind::scaled_matmul;
  if (topology.has_blocks() && product) return block_tile(local, topology.lanes);
  const std::int64_t elements = volume(local);
  std::int64_t pieces = std::max(2 * topology.lanes, 4 * members);
  if (topology.has_blocks())
    pieces = std::max(ceil_div(elements, kBlockElements),
                      std::min<std::int64_t>(elements / kLeastBlockElements, topology.lanes));
  Shape least = Shape::filled(dims, 1);
  if (product) {
    least[dims - 2] = std::clamp<std::int64_t>(local[dims - 2], 1, 8);
    least[dims - 1] = std::clamp<std::int64_t>(local[dims - 1], 1, 32);
  } else {
    pieces = std::min(pieces, std::max<std::int64_t>(members, elements / 1024));
    if (dims > 0) least[dims - 1] = std::clamp<std::int64_t>(local[dims - 1], 1, 64);
  }
  return cut_into(local, pieces, least);
}

Shape default_library_tile(const Shape& local, int members, const Topology& topology) {
  Topology beside_copies = topology;
  beside_copies.copy = std::max(1, topology.copy);  // a call is worth as much as an operation of a copy engine
  Shape tile = default_communication_tile(local, members, beside_copies);
  tile[tile.size() - 1] = local.back();
  return tile;
}

Shape default_communication_tile(const Shape& whole, int members, const Topology& topology) {
  const std::int64_t elements = volume(whole);
  std::int64_t pieces = std::max(std::min<std::int64_t>(std::int64_t{4} * members, elements / 1024), elements >> 20);
  if (topology.has_blocks() && topology.copy == 0 && topology.movers > 0) {
    pieces = elements / (kMoverElements * topology.movers);
  } else if (topology.has_blocks() && topology.copy == 0) {
    pieces = ceil_div(elements, kBlockElements);
  } else if (topology.has_blocks()) {
    // An operation of a copy engine costs as much as a megabyte or two of link time, so it should move several; what
    // was measured on two H200s: four million elements a piece were as good as any, and better than fewer at 1024 rows.
    pieces = elements >> 22;
  }
  Shape least = Shape::filled(whole.size(), 1);
  if (!whole.empty()) least[whole.size() - 1] = std::max<std::int64_t>(1, std::min<std::int64_t>(64, whole.back()));
  return cut_into(whole, std::max<std::int64_t>(pieces, members), least);
}

}  // namespace tileway
