// Tensor-parallel decoding: a few rows at most, so the time is that of reading w.
#include "ops/gemm.hpp"
#include "tileway/ops.hpp"

namespace tileway {
namespace {

void build(Program& p, DType dtype, std::span<const std::int64_t> size) {
  const std::int64_t n = size[0], k = size[1];
  const Tensor x = p.input("x", dtype, {1, k}, Shard(1));
  const Tensor w = gemm_weight(p, dtype, k, n, Shard(0));
  p.output("y", all_reduce(gemm(x, w)));
}

const RegisterOperator kRegister(
    {"gemv_all_reduce", "y = all_reduce(x w) for one row x", {"N", "K"}, {2048, 2048}, build});

}  // namespace
}  // namespace tileway
