// A program whose products are followed by functions of their elements, for every way to broadcast.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "tileway/program.hpp"

namespace tileway::testing {

inline std::vector<std::array<std::int64_t, 3>> epilogue_sizes() {
  return {{37, 19, 23}, {64, 96, 32}, {1, 1, 1}, {130, 264, 72}, {5, 300, 8}};
}

// x w1 + b in columns, gelu, times a gate of the same shape, plus one for each row; cast to f32 and back; and a second
// product that is squared and scaled by a scalar.
inline Program program_with_epilogues(int ranks, DType dtype, std::int64_t m, std::int64_t n, std::int64_t k) {
  Program p("epilogues", ranks);
  const Tensor x = p.input("x", dtype, {m, k}, Replicate());
  const Tensor w = p.input("w", dtype, {k, n}, Shard(1));
  const Tensor bias = p.input("b", dtype, {n}, Shard(0));
  const Tensor gate = p.input("g", dtype, {m, n}, Shard(1));
  const Tensor rows = p.input("r", dtype, {m, 1}, Replicate());
  const Tensor h = gelu(matmul(x, w) + bias) * gate + rows;
  p.output("y", all_gather(cast(cast(h, DType::f32) * 0.5, dtype)));
  const Tensor second = matmul(x, w);
  p.output("z", all_to_all(pointwise(Function::relu, {second * second}), 0));
  return p;
}

}  // namespace tileway::testing
