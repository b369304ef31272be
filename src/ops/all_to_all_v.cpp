// Token dispatch of a mixture of experts: how many rows go where is known only when it runs.
#include "tileway/ops.hpp"

namespace tileway {
namespace {

void build(Program& p, DType dtype, std::span<const std::int64_t> size) {
  const std::int64_t n = p.world(), tokens = size[0], width = size[1];
  const Tensor x = p.input("x", dtype, {n * tokens, width}, Shard(0, std::vector<std::int64_t>(n, tokens)));
  const Tensor splits = p.input("splits", DType::i64, {n, n}, Shard(0));
  p.output("y", all_to_all_v(x, splits, n * tokens));
  p.output("received", all_to_all(splits, 1));
}

const RegisterOperator kRegister({"all_to_all_v",
                                  "y = all_to_all_v(x, splits), tokens a rank, splits read when it runs",
                                  {"tokens", "width"},
                                  {128, 512},
                                  build});

}  // namespace
}  // namespace tileway
