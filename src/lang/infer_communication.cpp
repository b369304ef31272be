// What each collective takes and gives.
#include <algorithm>

#include "lang/infer.hpp"

namespace tileway {
namespace {

void require(const Inference& in, bool fits, const char* expected, const char* hint) {
  if (!fits) in.refuse("no rule for this placement", expected, to_string(in.operands[0].placement), hint);
}

Placement on_member(const Inference& in, const Shape& shape) {
  if (in.op.dim < 0 || in.op.dim >= in.members) {
    in.refuse("the root is not in the group", "0 to " + std::to_string(in.members - 1), std::to_string(in.op.dim));
  }
  if (shape.empty()) in.refuse("a scalar cannot live on one rank", "at least 1 dimension", {}, "reshape it to [1]");
  std::vector<std::int64_t> sizes(in.members, 0);
  sizes[in.op.dim] = shape[0];
  return Shard(0, std::move(sizes));
}

TensorType infer_all_to_all_v(const Inference& in) {
  const TensorType& x = in.operands[0];
  const TensorType& splits = in.operands[1];
  const std::int64_t n = in.members;
  require(in, x.placement.is_shard(0), "rows sharded: Shard(0)", "shard it by rows first");
  const bool fits = !is_floating(splits.dtype) && splits.shape == Shape{n, n} &&
                    splits.placement == Shard(0, std::vector<std::int64_t>(n, 1));
  if (!fits) {
    const TensorType expected{DType::i32, {n, n}, x.group, Shard(0, std::vector<std::int64_t>(n, 1))};
    in.refuse("the splits do not fit the group", to_string(expected), to_string(splits));
  }
  if (in.op.extent < 0) in.refuse("a negative bound on the rows received", "0 or more", std::to_string(in.op.extent));
  TensorType type = x;
  type.shape[0] = n * in.op.extent;
  type.placement = Shard(0, std::vector<std::int64_t>(n, in.op.extent));
  return type;
}

TensorType infer_send(const Inference& in) {
  TensorType type = in.operands[0];
  const auto& groups = in.program.groups();
  if (in.op.group < 0 || in.op.group >= static_cast<int>(groups.size()) ||
      static_cast<int>(groups[in.op.group].size()) != in.members) {
    in.refuse("the receiving group does not fit", "a group of " + std::to_string(in.members) + " ranks",
              "group " + std::to_string(in.op.group));
  }
  type.group = in.op.group;
  return type;
}

}  // namespace

TensorType infer_communication(const Inference& in) {
  TensorType type = in.operands[0];
  const Placement from = type.placement;
  switch (in.op.kind) {
    case OpKind::all_reduce:
      require(in, from.is_partial(), "Partial", "a Replicate needs no all_reduce, a Shard an all_gather");
      type.placement = Replicate();
      return type;
    case OpKind::reduce_scatter:
      require(in, from.is_partial(), "Partial", "cut a Replicate with shard");
      type.placement = resolved(in, in.op.placement, type.shape, in.members);
      if (!type.placement.is_shard()) in.refuse("the target is not a Shard", "Shard", to_string(type.placement));
      return type;
    case OpKind::all_gather:
      require(in, from.is_shard(), "Shard", "all_reduce a Partial");
      type.placement = Replicate();
      return type;
    case OpKind::all_to_all:
      require(in, from.is_shard(), "Shard", "reduce_scatter a Partial, shard a Replicate");
      type.placement = resolved(in, in.op.placement, type.shape, in.members);
      if (!type.placement.is_shard()) in.refuse("the target is not a Shard", "Shard", to_string(type.placement));
      return type;
    case OpKind::shard:
      require(in, from.is_replicate(), "Replicate", "reduce_scatter a Partial, all_to_all a Shard");
      type.placement = resolved(in, in.op.placement, type.shape, in.members);
      if (!type.placement.is_shard()) in.refuse("the target is not a Shard", "Shard", to_string(type.placement));
      return type;
    case OpKind::broadcast:
      if (from != on_member(in, type.shape)) {
        in.refuse("the tensor is not on the root alone", to_string(on_member(in, type.shape)), to_string(from));
      }
      type.placement = Replicate();
      return type;
    case OpKind::reduce:
      require(in, from.is_partial(), "Partial", "cut a Replicate with shard");
      type.placement = on_member(in, type.shape);
      return type;
    case OpKind::send:
      return infer_send(in);
    default:
      return infer_all_to_all_v(in);
  }
}

}  // namespace tileway
