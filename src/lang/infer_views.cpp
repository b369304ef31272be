// Reductions along a dimension, and operations that only move elements.
#include <algorithm>

#include "lang/infer.hpp"

namespace tileway {
namespace {

std::int64_t product_of(const Shape& shape, std::size_t first, std::size_t last) {
  std::int64_t product = 1;
  for (std::size_t i = first; i < last; ++i) product *= shape[i];
  return product;
}

int checked_dim(const Inference& in) {
  const int dims = static_cast<int>(in.operands[0].shape.size());
  if (in.op.dim < 0 || in.op.dim >= dims) {
    in.refuse("the dimension does not exist", "0 to " + std::to_string(dims - 1), std::to_string(in.op.dim));
  }
  return in.op.dim;
}

}  // namespace

TensorType infer_rows(const Inference& in) {
  const TensorType& x = in.operands[0];
  if (!is_floating(x.dtype)) in.refuse("not defined on integers", "f32, bf16 or f16", {}, "cast first");
  if (x.shape.empty()) in.refuse("a scalar has no last dimension", "at least 1 dimension");
  const int last = static_cast<int>(x.shape.size()) - 1;
  if (x.placement.is_partial()) {
    in.refuse("a row function of a Partial is not the Partial of the function", "Replicate or Shard", {},
              "all_reduce it first");
  }
  if (x.placement.is_shard(last)) {
    in.refuse("the last dimension is sharded", "whole rows on each rank", to_string(x.placement),
              "all_gather or all_to_all it first");
  }
  for (std::size_t i = 1; i < in.operands.size(); ++i) {
    const TensorType& weight = in.operands[i];
    if (weight.dtype != x.dtype || weight.shape != Shape{x.shape.back()} || !weight.placement.is_replicate()) {
      const TensorType expected{x.dtype, {x.shape.back()}, x.group, Replicate()};
      in.refuse("the weights do not fit the rows", to_string(expected), to_string(weight));
    }
  }
  return x;
}

TensorType infer_reduce_dim(const Inference& in) {
  const int dim = checked_dim(in);
  TensorType type = in.operands[0];
  const ReduceOp op = in.op.reduce;
  if (op == ReduceOp::mean && !is_floating(type.dtype)) {
    in.refuse("the mean of integers is not an integer", "f32, bf16 or f16", {}, "cast first");
  }
  if (type.placement.is_partial()) {
    const bool linear = type.placement == Partial(ReduceOp::sum) && (op == ReduceOp::sum || op == ReduceOp::mean);
    if (!linear && type.placement != Partial(op)) {
      in.refuse("this reduction of a Partial is not the Partial of the reduction", "the same reduction",
                to_string(type.placement), "all_reduce it first");
    }
  }
  const bool across = type.placement.is_shard(dim);
  if (across && op == ReduceOp::mean) {
    in.refuse("a mean along the sharded dimension", "sum, max or min", "mean", "Take the sum and scale");
  }
  if (in.op.keep_dim) {
    type.shape[dim] = 1;
  } else {
    type.shape.erase(dim);
    if (type.placement.is_shard() && type.placement.dim > dim) --type.placement.dim;
  }
  if (across) type.placement = Partial(op);
  return type;
}

TensorType infer_reshape(const Inference& in) {
  TensorType type = in.operands[0];
  const Shape& target = in.op.shape;
  if (checked_volume(target, "reshape") != volume(type.shape)) {
    in.refuse("the number of elements changes", std::to_string(volume(type.shape)) + " elements", to_string(target));
  }
  if (type.placement.is_shard()) {
    // The part of a rank is [outer, size * inner]; it must be the part of a dimension of the target too.
    const std::size_t dim = type.placement.dim;
    const std::int64_t outer = product_of(type.shape, 0, dim);
    const std::int64_t inner = product_of(type.shape, dim + 1, type.shape.size());
    for (std::size_t d = 0; d < target.size(); ++d) {
      const std::int64_t target_inner = product_of(target, d + 1, target.size());
      if (product_of(target, 0, d) != outer || target_inner == 0) continue;
      std::vector<std::int64_t> sizes = type.placement.sizes;
      bool whole = inner > 0;
      for (std::int64_t& size : sizes) {
        whole = whole && size * inner % target_inner == 0;
        size = size * inner / target_inner;
      }
      if (!whole) continue;
      type.shape = target;
      type.placement = Shard(static_cast<int>(d), std::move(sizes));
      return type;
    }
    in.refuse("a rank's part would be torn",
              "a dimension that starts where the sharded one does and that the parts divide", to_string(target),
              "all_gather it first, or choose shard sizes that divide");
  }
  type.shape = target;
  return type;
}

TensorType infer_transpose(const Inference& in) {
  TensorType type = in.operands[0];
  const Shape& permutation = in.op.shape;
  bool valid = permutation.size() == type.shape.size();
  std::uint32_t seen = 0;
  for (std::int64_t dim : permutation) {
    valid = valid && dim >= 0 && dim < static_cast<std::int64_t>(type.shape.size()) && (seen >> dim & 1U) == 0;
    if (valid) seen |= 1U << dim;
  }
  if (!valid) {
    in.refuse("not a permutation", "each of the " + std::to_string(type.shape.size()) + " dimensions once",
              to_string(permutation));
  }
  const TensorType from = type;
  for (std::size_t i = 0; i < permutation.size(); ++i) {
    type.shape[i] = from.shape[permutation[i]];
    if (from.placement.is_shard(static_cast<int>(permutation[i]))) type.placement.dim = static_cast<int>(i);
  }
  return type;
}

TensorType infer_slice(const Inference& in) {
  const int dim = checked_dim(in);
  TensorType type = in.operands[0];
  if (in.op.start < 0 || in.op.extent < 0 || in.op.start > type.shape[dim] ||
      in.op.extent > type.shape[dim] - in.op.start) {
    in.refuse("the slice leaves the tensor", "inside 0:" + std::to_string(type.shape[dim]),
              std::to_string(in.op.start) + ":" + std::to_string(in.op.start) + "+" + std::to_string(in.op.extent));
  }
  if (type.placement.is_shard(dim)) {
    in.refuse("the sliced dimension is sharded", "a dimension that each rank holds whole", to_string(type.placement),
              "all_gather it first");
  }
  type.shape[dim] = in.op.extent;
  return type;
}

TensorType infer_update(const Inference& in) {
  if (in.program.ops()[in.op.operands[0]].kind != OpKind::input) {
    in.refuse("only an input can be updated", "an input", "%" + std::to_string(in.op.operands[0]));
  }
  if (in.operands[0] != in.operands[1]) {
    in.refuse("the value does not fit the state", to_string(in.operands[0]), to_string(in.operands[1]));
  }
  return in.operands[0];
}

}  // namespace tileway
