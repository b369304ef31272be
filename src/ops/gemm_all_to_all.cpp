// Expert output: each rank multiplies the tokens of all ranks by its own columns, then every rank gets its tokens
// whole.
#include "ops/gemm.hpp"
#include "tileway/ops.hpp"

namespace tileway {
namespace {

void build(Program& p, DType dtype, std::span<const std::int64_t> size) {
  const std::int64_t m = size[0], n = size[1], k = size[2];
  const Tensor x = p.input("x", dtype, {m, k}, Replicate());
  const Tensor w = gemm_weight(p, dtype, k, n, Shard(1));
  p.output("y", all_to_all(gemm(x, w), 0));
}

const RegisterOperator kRegister({"gemm_all_to_all",
                                  "y = all_to_all(x w), from sharded columns to sharded rows",
                                  {"M", "N", "K"},
                                  {512, 1024, 1024},
                                  build});

}  // namespace
}  // namespace tileway
