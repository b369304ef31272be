// What follows a row-parallel layer: the sum over ranks, a residual and a norm.
#include "tileway/ops.hpp"

namespace tileway {
namespace {

void build(Program& p, DType dtype, std::span<const std::int64_t> size) {
  const std::int64_t rows = size[0], width = size[1];
  const Tensor x = p.input("x", dtype, {rows, width}, Partial());
  const Tensor bias = p.input("bias", dtype, {width}, Replicate());
  const Tensor residual = p.input("residual", dtype, {rows, width}, Replicate());
  const Tensor gamma = p.input("gamma", dtype, {width}, Replicate());
  p.output("y", rms_norm(all_reduce(x) + bias + residual, gamma));
}

const RegisterOperator kRegister(
    {"all_reduce_rms_norm", "y = rms_norm(all_reduce(x) + bias + residual)", {"rows", "width"}, {256, 1024}, build});

}  // namespace
}  // namespace tileway
