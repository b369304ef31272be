#include "ops/gemm.hpp"

namespace tileway {
namespace {

// One for each row of a side, sharded as its rows are.
Placement placement_of_scale(Tensor side, int dim) {
  return side.placement().is_shard(0) ? Shard(dim, side.placement().sizes) : Replicate();
}

}  // namespace

Tensor gemm_weight(Program& program, DType dtype, std::int64_t k, std::int64_t n, Placement placement, Where where) {
  if (dtype != DType::e4m3) return program.input("w", dtype, {k, n}, std::move(placement), 0, where);
  if (placement.is_shard()) placement.dim = 1 - placement.dim;
  return program.input("w", dtype, {n, k}, std::move(placement), 0, where);
}

Tensor gemm(Tensor x, Tensor w, Where where) {
  if (x.dtype() != DType::e4m3) return matmul(x, w, where);
  Program& p = x.program();
  const Tensor rows = p.input("x_scale", DType::f32, {x.shape()[0], 1}, placement_of_scale(x, 0), 0, where);
  const Tensor columns = p.input("w_scale", DType::f32, {1, w.shape()[0]}, placement_of_scale(w, 1), 0, where);
  return scaled_matmul(x, w, rows, columns, DType::bf16, where);
}

}  // namespace tileway
