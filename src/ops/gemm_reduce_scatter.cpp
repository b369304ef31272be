// Row-parallel linear layer whose result stays sharded by rows.
#include "ops/gemm.hpp"
#include "tileway/ops.hpp"

namespace tileway {
namespace {

void build(Program& p, DType dtype, std::span<const std::int64_t> size) {
  const std::int64_t m = size[0], n = size[1], k = size[2];
  const Tensor x = p.input("x", dtype, {m, k}, Shard(1));
  const Tensor w = gemm_weight(p, dtype, k, n, Shard(0));
  p.output("y", reduce_scatter(gemm(x, w), 0));
}

const RegisterOperator kRegister({"gemm_reduce_scatter",
                                  "y = reduce_scatter(x w), the contraction sharded",
                                  {"M", "N", "K"},
                                  {512, 1024, 1024},
                                  build});

}  // namespace
}  // namespace tileway
