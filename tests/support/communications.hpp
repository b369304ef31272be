// A program that communicates in every way.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <numeric>
#include <vector>

#include "tileway/program.hpp"

namespace tileway::testing {

// Parts that differ, one of them empty where there are more than two.
inline std::vector<std::int64_t> uneven(std::int64_t extent, int parts) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(parts), extent / (parts + 1));
  if (parts > 2) sizes[1] = 0;
  sizes.back() = extent - std::accumulate(sizes.begin(), sizes.end() - 1, std::int64_t{0});
  return sizes;
}

// Every communication from every dimension to every other one, in parts that differ.
inline Program every_communication(int ranks) {
  Program p("every communication", ranks);
  const Shape shape{11, 6, 10};
  const auto fresh = [&](const Placement& placement) {
    return p.input(fmt::format("x{}", p.ops().size()), DType::f32, shape, placement);
  };
  const auto give = [&](Tensor y) { p.output(fmt::format("y{}", p.ops().size()), y + 1.0); };
  for (int dim = 0; dim < 3; ++dim) {
    const std::vector<std::int64_t> sizes = uneven(shape[static_cast<std::size_t>(dim)], ranks);
    give(all_gather(fresh(Shard(dim)) + 2.0));
    give(all_gather(fresh(Shard(dim, sizes))));
    give(reduce_scatter(fresh(Partial()), dim));
    give(reduce_scatter(fresh(Partial(ReduceOp::max)), dim, sizes));
    for (int to = 0; to < 3; ++to) {
      give(all_to_all(fresh(Shard(dim, sizes)) + 1.0, to));
      give(all_to_all(fresh(Shard(dim)), to, uneven(shape[static_cast<std::size_t>(to)], ranks)));
    }
  }
  for (int root : {0, ranks - 1}) {
    std::vector<std::int64_t> there(static_cast<std::size_t>(ranks), 0);
    there[static_cast<std::size_t>(root)] = shape[0];
    give(broadcast(fresh(Shard(0, there)) + 3.0, root));
    give(reduce(fresh(Partial()), root));
  }
  give(all_reduce(fresh(Partial(ReduceOp::min))));
  return p;
}

}  // namespace tileway::testing
