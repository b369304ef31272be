// Products of matrices: which role the sharded dimension plays on each side decides the placement of the product.
#include <algorithm>
#include <array>

#include "lang/infer.hpp"

namespace tileway {
namespace {

constexpr int kContraction = -1;
constexpr int kWhole = -2;

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

// The dimension of the product that a sharded side cuts, or kContraction.
int product_dim(const Sides& sides, const TensorType& type, bool left) {
  const int own = static_cast<int>(type.shape.size());
  const int contraction = left ? own - 1 : own - 2;
  if (type.placement.dim == contraction) return kContraction;
  return type.placement.dim + static_cast<int>(sides.dims) - own;
}

// How the product is placed, from the dimension of it that each side cuts: kContraction, or kWhole for none.
Placement product_placement(const Inference& in, const std::array<int, 2>& cut) {
  const Placement& a = in.operands[0].placement;
  const Placement& b = in.operands[1].placement;
  if (a.is_partial() || b.is_partial()) {
    const Placement& partial = a.is_partial() ? a : b;
    const Placement& other = a.is_partial() ? b : a;
    if (partial != Partial(ReduceOp::sum) || !other.is_replicate()) {
      in.refuse("a Partial can only be multiplied by a Replicate", "Partial(sum) and Replicate", {},
                "all_reduce or reduce_scatter the Partial first");
    }
    return Partial();
  }
  if (cut[0] == kWhole && cut[1] == kWhole) return Replicate();
  if (cut[0] == kContraction || cut[1] == kContraction) {
    if (cut[0] != cut[1] || a.sizes != b.sizes) {
      in.refuse("the contraction is sharded on one side only, or differently", "the same sizes on both sides", {},
                "shard the other side alike, or all_gather this one");
    }
    return Partial();
  }
  if (cut[0] >= 0 && cut[1] >= 0 && (cut[0] != cut[1] || a.sizes != b.sizes)) {
    in.refuse("both sides are sharded, on different dimensions of the product", {}, {},
              "all_gather one side; a product has one sharded dimension");
  }
  const int side = cut[0] >= 0 ? 0 : 1;
  return Shard(cut[side], in.operands[side].placement.sizes);
}

// A scale of the whole matrix, or one for each element along dimension `dim` of the product.
void require_scale(const Inference& in, const TensorType& product, std::size_t operand, int dim) {
  const TensorType& scale = in.operands[operand];
  Shape each{1, 1};
  each[dim] = product.shape[dim];
  if (scale.dtype != DType::f32 || (scale.shape != Shape{1, 1} && scale.shape != each)) {
    in.refuse("the scale of %" + std::to_string(in.op.operands[operand - 2]) + " does not fit",
              "f32[1, 1] or f32" + to_string(each), std::string(name_of(scale.dtype)) + to_string(scale.shape));
  }
  const bool alike = product.placement.is_shard(dim) && scale.placement == product.placement;
  if (!scale.placement.is_replicate() && !alike) {
    in.refuse("the scale of %" + std::to_string(in.op.operands[operand - 2]) + " is not placed as the product",
              product.placement.is_shard(dim) ? "Replicate or " + to_string(product.placement) : "Replicate",
              to_string(scale.placement), "all_gather it first");
  }
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
  std::array<int, 2> cut{kWhole, kWhole};
  for (int side = 0; side < 2; ++side) {
    const TensorType& operand = in.operands[side];
    if (!operand.placement.is_shard()) continue;
    cut[side] = product_dim(sides, operand, side == 0);
    if (cut[side] >= 0 && operand.shape[operand.placement.dim] != sides.shape[cut[side]]) {
      in.refuse("a sharded batch dimension would be broadcast", {}, to_string(operand), "all_gather it first");
    }
  }
  return {a.dtype, sides.shape, a.group, product_placement(in, cut)};
}

TensorType infer_scaled_matmul(const Inference& in) {
  const TensorType& a = in.operands[0];
  const TensorType& b = in.operands[1];
  for (const TensorType* side : {&a, &b}) {
    if (side->dtype == DType::e4m3 && side->shape.size() == 2) continue;
    in.refuse("scaled_matmul takes matrices of e4m3", "e4m3[m, k] and e4m3[n, k]", to_string(*side),
              side->dtype == DType::e4m3 ? "" : "cast to e4m3, or use matmul");
  }
  if (b.shape[1] != a.shape[1]) {
    in.refuse("the contracted dimensions differ", "k = " + std::to_string(a.shape[1]) + " along the rows of both",
              std::to_string(b.shape[1]), "b is given transposed: [n, k]");
  }
  if (in.op.dtype != DType::f32 && in.op.dtype != DType::bf16 && in.op.dtype != DType::f16) {
    in.refuse("no dtype of a product", "f32, bf16 or f16", std::string(name_of(in.op.dtype)));
  }
  std::array<int, 2> cut{kWhole, kWhole};
  for (int side = 0; side < 2; ++side) {
    const Placement& placement = in.operands[side].placement;
    if (placement.is_shard()) cut[side] = placement.dim == 1 ? kContraction : side;
  }
  const TensorType type{in.op.dtype, {a.shape[0], b.shape[0]}, a.group, product_placement(in, cut)};
  require_scale(in, type, 2, 0);
  require_scale(in, type, 3, 1);
  return type;
}

}  // namespace tileway
