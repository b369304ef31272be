#include "lang/access.hpp"

#include <algorithm>

#include "tileway/error.hpp"

namespace tileway {
namespace {

// A range of a dimension.
struct Range {
  std::int64_t start;
  std::int64_t extent;
};

struct Relation {
  const TensorType& from;  // the operand
  const TensorType& to;    // the result
  int member;
  const Box& result;
  Shape local;  // of the operand

  // The operand's range along its dimension d where that is the result's dimension e, element for element. An extent of
  // 1 broadcasts; an operand that is replicated along a dimension which the result shards is read at its shard.
  Range aligned(std::size_t d, std::size_t e) const {
    if (from.shape[d] == 1 && to.shape[e] != 1) return {0, 1};
    Range range{result.start[e], result.extent[e]};
    const bool cut = to.placement.is_shard(static_cast<int>(e)) && !from.placement.is_shard(static_cast<int>(d));
    if (cut) range.start += to.shard_start(member);
    return range;
  }
  Range whole(std::size_t d) const { return {0, local[d]}; }
};

void put(Box& box, Range range) {
  box.start.push_back(range.start);
  box.extent.push_back(range.extent);
}

Box pointwise_box(const Relation& relation) {
  Box box;
  const std::size_t shift = relation.to.shape.size() - relation.from.shape.size();
  for (std::size_t d = 0; d < relation.local.size(); ++d) put(box, relation.aligned(d, d + shift));
  return box;
}

Box matmul_box(const Relation& relation, bool left) {
  Box box;
  const std::size_t dims = relation.local.size();
  const std::size_t shift = relation.to.shape.size() - dims;
  const std::size_t contraction = left ? dims - 1 : dims - 2;
  for (std::size_t d = 0; d < dims; ++d) {
    put(box, d == contraction ? relation.whole(d) : relation.aligned(d, d + shift));
  }
  return box;
}

// Of the product of a [m, k] and b [n, k], and of scales that broadcast to it.
Box scaled_matmul_box(const Relation& relation, std::size_t operand) {
  if (operand >= 2) return pointwise_box(relation);
  Box box;
  put(box, relation.aligned(0, operand));
  put(box, relation.whole(1));
  return box;
}

Box row_box(const Relation& relation, std::size_t operand) {
  if (operand > 0) return Box::whole(relation.local);
  Box box = relation.result;
  box.start.back() = 0;
  box.extent.back() = relation.local.back();
  return box;
}

Box reduce_box(const Relation& relation, const Op& op) {
  Box box;
  for (std::size_t d = 0; d < relation.local.size(); ++d) {
    const bool reduced = d == static_cast<std::size_t>(op.dim);
    const std::size_t e = op.keep_dim || d < static_cast<std::size_t>(op.dim) ? d : d - 1;
    put(box, reduced ? relation.whole(d) : Range{relation.result.start[e], relation.result.extent[e]});
  }
  return box;
}

// Leading dimensions of the same extent correspond; behind them, everything is needed.
Box reshape_box(const Relation& relation) {
  Box box = Box::whole(relation.local);
  const Shape result = relation.to.local_shape(relation.member);
  for (std::size_t d = 0; d < std::min(result.size(), relation.local.size()); ++d) {
    if (result[d] != relation.local[d]) break;
    box.start[d] = relation.result.start[d];
    box.extent[d] = relation.result.extent[d];
  }
  return box;
}

Box transpose_box(const Relation& relation, const Op& op) {
  Box box = Box::whole(relation.local);
  for (std::size_t i = 0; i < op.shape.size(); ++i) {
    box.start[op.shape[i]] = relation.result.start[i];
    box.extent[op.shape[i]] = relation.result.extent[i];
  }
  return box;
}

Box lookup_box(const Relation& relation, const Op& op, std::size_t operand) {
  Box box;
  const std::size_t dims = relation.local.size();
  const std::size_t last = relation.to.shape.size() - 1;
  const bool bag = op.kind == OpKind::embedding_bag;
  if (operand == 0) {  // [r, d] or [t, r, d]: every row, the result's columns
    if (dims == 3) put(box, relation.aligned(0, 0));
    put(box, relation.whole(dims - 2));
    put(box, relation.aligned(dims - 1, last));
    return box;
  }
  for (std::size_t d = 0; d < dims; ++d) put(box, bag && d == dims - 1 ? relation.whole(d) : relation.aligned(d, d));
  return box;
}

}  // namespace

Box operand_box(const Program& program, const Op& op, std::size_t operand, int member, const Box& result) {
  const TensorType& from = program.ops()[op.operands[operand]].type;
  const Relation relation{from, op.type, member, result, from.local_shape(member)};
  switch (op.kind) {
    case OpKind::pointwise:
      return pointwise_box(relation);
    case OpKind::matmul:
      return matmul_box(relation, operand == 0);
    case OpKind::scaled_matmul:
      return scaled_matmul_box(relation, operand);
    case OpKind::softmax:
    case OpKind::layer_norm:
    case OpKind::rms_norm:
      return row_box(relation, operand);
    case OpKind::reduce_dim:
      return reduce_box(relation, op);
    case OpKind::reshape:
      return reshape_box(relation);
    case OpKind::transpose:
      return transpose_box(relation, op);
    case OpKind::slice: {
      Box box = result;
      box.start[op.dim] += op.start;
      return box;
    }
    case OpKind::gather_rows:
    case OpKind::embedding_bag:
      return lookup_box(relation, op, operand);
    case OpKind::shard:
      return pointwise_box(relation);
    case OpKind::cast:
    case OpKind::update:
      return result;
    default:
      break;
  }
  TW_ASSERT(!"operand_box is for computations");
  return {};
}

}  // namespace tileway
