// Column-parallel linear layer over rows that are sharded.
#include "ops/gemm.hpp"
#include "tileway/ops.hpp"

namespace tileway {
namespace {

void build(Program& p, DType dtype, std::span<const std::int64_t> size) {
  const std::int64_t m = size[0], n = size[1], k = size[2];
  const Tensor x = p.input("x", dtype, {m, k}, Shard(0));
  const Tensor w = gemm_weight(p, dtype, k, n, Shard(1));
  p.output("y", gemm(all_gather(x), w));
}

const RegisterOperator kRegister(
    {"all_gather_gemm", "y = all_gather(x) w, the columns of w sharded", {"M", "N", "K"}, {512, 1024, 1024}, build});

}  // namespace
}  // namespace tileway
