// Matmul: which role the sharded dimension plays on each side decides the placement of the product.
#include <algorithm>

#include "lang/infer.hpp"

namespace tileway {
namespace {

struct Sides {
  std::size_t dims;  // of the product
  Shape shape;
  std::int64_t k;
};

Sides product(const Inference& in) {
  const Shape& a = in.operands[0].shape;
  const Shape& b = in.operands[1].shape;
  if (a.size() < 2 || b.size() < 2) {
    in.refuse("matmul takes matrices", "at least 2 dimensions on both sides", {},
              "reshape a vector to [1, n] or [n, 1]");
  }
  const std::int64_t k = a.back();
  if (b[b.size() - 2] != k) {
    in.refuse("the contracted dimensions differ", "k = " + std::to_string(k) + " on the right",
              std::to_string(b[b.size() - 2]));
  }
  const std::size_t dims = std::max(a.size(), b.size());
  Shape shape = Shape::filled(dims, 1);
  shape[dims - 2] = a[a.size() - 2];
  shape[dims - 1] = b.back();
  for (const Shape* side : {&a, &b}) {
    const std::size_t shift = dims - side->size();
    for (std::size_t d = 0; d + 2 < side->size(); ++d) {
      if ((*side)[d] == 1 || (*side)[d] == shape[shift + d]) continue;
      if (shape[shift + d] != 1) in.refuse("the batch dimensions do not broadcast");
      shape[shift + d] = (*side)[d];
    }
  }
  return {dims, shape, k};
}

// The dimension of the product that a sharded side cuts, or -1 for the contraction.
int product_dim(const Sides& sides, const TensorType& type, bool left) {
  const int own = static_cast<int>(type.shape.size());
  const int contraction = left ? own - 1 : own - 2;
  if (type.placement.dim == contraction) return -1;
  return type.placement.dim + static_cast<int>(sides.dims) - own;
}

}  // namespace

TensorType infer_matmul(const Inference& in) {
  const TensorType& a = in.operands[0];
  const TensorType& b = in.operands[1];
  if (a.dtype != b.dtype) {
    in.refuse("the dtypes differ", std::string(name_of(a.dtype)), std::string(name_of(b.dtype)), "cast one of them");
  }
  if (!is_floating(a.dtype)) {
    in.refuse("matmul is not defined on integers", "f32, bf16 or f16", std::string(name_of(a.dtype)), "cast first");
  }
  if (in.op.precision == Precision::tf32 && a.dtype != DType::f32) {
    in.refuse("tf32 is a precision of products of f32", "f32", std::string(name_of(a.dtype)),
              "leave the precision out, or cast both sides to f32");
  }
  const Sides sides = product(in);
  TensorType type{a.dtype, sides.shape, a.group, Replicate()};
  if (a.placement.is_partial() || b.placement.is_partial()) {
    const Placement& partial = a.placement.is_partial() ? a.placement : b.placement;
    const Placement& other = a.placement.is_partial() ? b.placement : a.placement;
    if (partial != Partial(ReduceOp::sum) || !other.is_replicate()) {
      in.refuse("a Partial can only be multiplied by a Replicate", "Partial(sum) and Replicate", {},
                "all_reduce or reduce_scatter the Partial first");
    }
    type.placement = Partial();
    return type;
  }
  int cut[2] = {-2, -2};  // -2: replicated; -1: the contraction
  for (int side = 0; side < 2; ++side) {
    const TensorType& operand = in.operands[side];
    if (!operand.placement.is_shard()) continue;
    cut[side] = product_dim(sides, operand, side == 0);
    if (cut[side] >= 0 && operand.shape[operand.placement.dim] != sides.shape[cut[side]]) {
      in.refuse("a sharded batch dimension would be broadcast", {}, to_string(operand), "all_gather it first");
    }
  }
  if (cut[0] == -2 && cut[1] == -2) return type;
  if (cut[0] == -1 || cut[1] == -1) {
    if (cut[0] != cut[1] || a.placement.sizes != b.placement.sizes) {
      in.refuse("the contraction is sharded on one side only, or differently", "the same sizes on both sides", {},
                "shard the other side alike, or all_gather this one");
    }
    type.placement = Partial();
    return type;
  }
  if (cut[0] >= 0 && cut[1] >= 0 && (cut[0] != cut[1] || a.placement.sizes != b.placement.sizes)) {
    in.refuse("both sides are sharded, on different dimensions of the product", {}, {},
              "all_gather one side; a product has one sharded dimension");
  }
  const int side = cut[0] >= 0 ? 0 : 1;
  type.placement = Shard(cut[side], in.operands[side].placement.sizes);
  return type;
}

}  // namespace tileway
