// Looking rows up by index: gather_rows and embedding_bag.
#include "lang/infer.hpp"

namespace tileway {
namespace {

void require_indices(const Inference& in) {
  if (is_floating(in.operands[1].dtype)) {
    in.refuse("indices are integers", "i32 or i64", std::string(name_of(in.operands[1].dtype)), "cast them");
  }
}

[[noreturn]] void refuse_placements(const Inference& in) {
  in.refuse("no rule for these placements",
            "a sharded table with replicated indices, or sharded indices with a replicated table", {},
            "all_gather one of them");
}

}  // namespace

TensorType infer_gather_rows(const Inference& in) {
  require_indices(in);
  const TensorType& table = in.operands[0];
  const TensorType& indices = in.operands[1];
  if (table.shape.size() != 2) in.refuse("the table is a matrix", "[rows, width]", to_string(table.shape));
  Shape shape = indices.shape;
  shape.push_back(table.shape[1]);
  TensorType type{table.dtype, shape, table.group, Replicate()};
  if (indices.placement.is_partial() || table.placement.is_partial()) refuse_placements(in);
  if (indices.placement.is_shard()) {
    if (!table.placement.is_replicate()) refuse_placements(in);
    type.placement = indices.placement;
  } else if (table.placement.is_shard(1)) {
    type.placement = Shard(static_cast<int>(indices.shape.size()), table.placement.sizes);
  } else if (table.placement.is_shard(0)) {
    type.placement = Partial();
  }
  return type;
}

TensorType infer_embedding_bag(const Inference& in) {
  require_indices(in);
  const TensorType& table = in.operands[0];
  const TensorType& indices = in.operands[1];
  const int tables = table.shape.size() == 3 ? 1 : 0;  // 1: there is a dimension of tables in front
  if (table.shape.size() != indices.shape.size() || (table.shape.size() != 2 && table.shape.size() != 3) ||
      (tables && table.shape[0] != indices.shape[0])) {
    in.refuse("tables and indices do not fit", "[r, d] with [b, l], or [t, r, d] with [t, b, l]");
  }
  if (in.op.reduce != ReduceOp::sum && in.op.reduce != ReduceOp::mean) {
    in.refuse("a bag is summed or averaged", "sum or mean", std::string(name_of(in.op.reduce)));
  }
  if (in.op.reduce == ReduceOp::mean && !is_floating(table.dtype)) {
    in.refuse("the mean of integers is not an integer", "f32, bf16 or f16", {}, "cast first");
  }
  Shape shape = indices.shape;
  shape.back() = table.shape.back();
  TensorType type{table.dtype, shape, table.group, Replicate()};
  const Placement& rows = table.placement;
  const Placement& bags = indices.placement;
  if (rows.is_replicate() && bags.is_replicate()) return type;
  if (tables && rows.is_shard(0) && bags == rows) {
    type.placement = rows;
  } else if (rows.is_replicate() && bags.is_shard(tables)) {
    type.placement = bags;
  } else if (bags.is_replicate() && rows.is_shard(tables + 1)) {
    type.placement = rows;
    type.placement.dim = tables + 1;
  } else if (bags.is_replicate() && rows.is_shard(tables)) {
    type.placement = Partial();
  } else {
    refuse_placements(in);
  }
  return type;
}

}  // namespace tileway
