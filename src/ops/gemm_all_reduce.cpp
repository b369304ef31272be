// Row-parallel linear layer: the contraction is sharded, every rank gets the sum.
#include "ops/gemm.hpp"
#include "tileway/ops.hpp"

namespace tileway {
namespace {

void build(Program& p, DType dtype, std::span<const std::int64_t> size) {
  const std::int64_t m = size[0], n = size[1], k = size[2];
  const Tensor x = p.input("x", dtype, {m, k}, Shard(1));
  const Tensor w = gemm_weight(p, dtype, k, n, Shard(0));
  p.output("y", all_reduce(gemm(x, w)));
}

const RegisterOperator kRegister(
    {"gemm_all_reduce", "y = all_reduce(x w), the contraction sharded", {"M", "N", "K"}, {512, 1024, 1024}, build});

}  // namespace
}  // namespace tileway
