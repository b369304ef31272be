// Cutting a tensor into a grid of boxes.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "tileway/program.hpp"
#include "tileway/topology.hpp"

namespace tileway {

// Per dimension, ascending boundaries from 0 to the extent: the cells are the boxes between them, numbered row-major.
// A dimension of extent 0 has no cells.
struct Tiling {
  std::vector<std::vector<std::int64_t>> cuts;

  std::size_t count() const;
  Box box(std::size_t cell) const;
  // Calls `visit` with each cell that shares elements with the box.
  void overlapping(const Box& box, const std::function<void(std::size_t)>& visit) const;
};

// The cells of a product's result. Blocks take them so that those that run at the same time form about a square and
// share what they load: by panels of rows of tiles, each column by column, and no panel higher than `most_rows`
// elements if one row of tiles is not. CPU threads take them row by row.
std::vector<std::size_t> product_order(const Tiling& tiling, std::int64_t most_rows, const Topology& topology);

// Boundaries of one dimension: every `step` elements (0: never), starting anew at each of the fixed boundaries.
std::vector<std::int64_t> cut_dimension(std::int64_t extent, std::int64_t step, const std::vector<std::int64_t>& fixed);

// Tile extents that cut `shape` into about `pieces` tiles, outer dimensions first, no tile thinner than `least`.
Shape cut_into(const Shape& shape, std::int64_t pieces, const Shape& least);

// The part of a communication's tile that one resident thread block should reduce: a tile of a copy engine is too much
// for it. Cut evenly along the first dimension that can be, so that each piece is contiguous where the tile is packed;
// whole where lanes are few.
std::vector<Box> lane_pieces(const Box& box, const Topology& topology);
// The part that one should move: as above, and no more pieces than there are movers, where there are any.
std::vector<Box> mover_pieces(const Box& box, const Topology& topology);

// Whether a tile of what a member computes must take a dimension whole for the body to be able to work on it.
bool keeps_whole(const Op& op, const Program& program, int member, std::size_t dim);

// Tile extents that suit the topology: for what one member computes, by compute lanes or by a library; and for the
// whole tensor that a communication moves.
Shape default_tile(const Op& op, const Shape& local, int members, const Topology& topology);
Shape default_library_tile(const Shape& local, int members, const Topology& topology);
Shape default_communication_tile(const Shape& whole, int members, const Topology& topology);

}  // namespace tileway
