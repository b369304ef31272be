#include "lang/infer.hpp"

#include <algorithm>
#include <numeric>

#include "tileway/error.hpp"

namespace tileway {
namespace {

std::string described(const Inference& in) {
  std::string text(name_of(in.op.kind));
  if (in.op.kind == OpKind::pointwise) text = name_of(in.op.function);
  if (in.op.kind == OpKind::input) text += " '" + in.op.name + "'";
  text += "(";
  for (std::size_t i = 0; i < in.operands.size(); ++i) {
    text += (i ? ", %" : "%") + std::to_string(in.op.operands[i]) + " " + to_string(in.operands[i]);
  }
  return text + ")" + (in.op.where.empty() ? "" : " at " + in.op.where);
}

TensorType infer_input(const Inference& in) {
  if (in.op.dtype == DType::f64) in.refuse("f64 is not a type of programs", "f32, bf16, f16, e4m3, i32 or i64", "f64");
  TensorType type{in.op.dtype, in.op.shape, in.op.group, {}};
  type.placement = resolved(in, in.op.placement, in.op.shape, in.members);
  return type;
}

TensorType infer_cast(const Inference& in) {
  TensorType type = in.operands[0];
  if (in.op.dtype == DType::f64) in.refuse("f64 is not a type of programs", "f32, bf16, f16, e4m3, i32 or i64", "f64");
  type.dtype = in.op.dtype;
  return type;
}

int expected_operands(const Op& op) {
  switch (op.kind) {
    case OpKind::input:
    case OpKind::constant:
      return 0;
    case OpKind::pointwise:
      return operand_count(op.function);
    case OpKind::scaled_matmul:
      return 4;
    case OpKind::layer_norm:
      return 3;
    case OpKind::matmul:
    case OpKind::rms_norm:
    case OpKind::gather_rows:
    case OpKind::embedding_bag:
    case OpKind::update:
    case OpKind::all_to_all_v:
      return 2;
    default:
      return 1;
  }
}

// Whether an operation adds, multiplies or compares elements of its first operand.
bool computes(OpKind kind) {
  switch (kind) {
    case OpKind::pointwise:
    case OpKind::matmul:
    case OpKind::softmax:
    case OpKind::layer_norm:
    case OpKind::rms_norm:
    case OpKind::reduce_dim:
    case OpKind::embedding_bag:
    case OpKind::all_reduce:
    case OpKind::reduce_scatter:
    case OpKind::reduce:
      return true;
    default:
      return false;
  }
}

}  // namespace

void Inference::refuse(std::string what, std::string expected, std::string got, std::string hint) const {
  throw Error(ErrorKind::invalid, {.where = described(*this),
                                   .what = std::move(what),
                                   .expected = std::move(expected),
                                   .got = std::move(got),
                                   .hint = std::move(hint)});
}

Placement resolved(const Inference& in, Placement placement, const Shape& shape, int members) {
  if (placement.is_partial() && placement.op == ReduceOp::mean) {
    in.refuse("there is no Partial(mean)", "sum, max or min", "mean", "Use Partial(sum) and scale");
  }
  if (!placement.is_shard()) return placement;
  const int dims = static_cast<int>(shape.size());
  if (placement.dim < 0) placement.dim += dims;
  if (placement.dim < 0 || placement.dim >= dims) {
    in.refuse("the sharded dimension does not exist", "a dimension of " + to_string(shape), to_string(placement));
  }
  const std::int64_t extent = shape[placement.dim];
  if (placement.sizes.empty()) {
    const std::int64_t chunk = (extent + members - 1) / members;
    for (int m = 0; m < members; ++m) {
      placement.sizes.push_back(std::clamp<std::int64_t>(extent - m * chunk, 0, chunk));
    }
    return placement;
  }
  const auto negative = std::any_of(placement.sizes.begin(), placement.sizes.end(),
                                    [&](std::int64_t size) { return size < 0 || size > extent; });
  if (static_cast<int>(placement.sizes.size()) != members || negative ||
      std::accumulate(placement.sizes.begin(), placement.sizes.end(), std::int64_t{0}) != extent) {
    in.refuse("the shard sizes do not cut the dimension",
              std::to_string(members) + " sizes that add up to " + std::to_string(extent), to_string(placement));
  }
  return placement;
}

TensorType infer(const Program& program, const Op& op) {
  Inference in{program, op, {}, 1};
  for (int operand : op.operands) {
    if (operand < 0 || operand >= static_cast<int>(program.ops().size())) {
      in.refuse("an operand that does not exist", "an earlier operation", "%" + std::to_string(operand));
    }
    in.operands.push_back(program.ops()[operand].type);
  }
  if (static_cast<int>(op.operands.size()) != expected_operands(op)) {
    in.refuse("wrong number of operands", std::to_string(expected_operands(op)), std::to_string(op.operands.size()));
  }
  if (op.precision != Precision::exact && op.kind != OpKind::matmul) {
    in.refuse("only a matmul has a precision", {}, std::string(name_of(op.precision)));
  }
  const int group = in.operands.empty() ? op.group : in.operands[0].group;
  if (group < 0 || group >= static_cast<int>(program.groups().size())) {
    in.refuse("no such group", "less than " + std::to_string(program.groups().size()), std::to_string(group));
  }
  in.members = static_cast<int>(program.groups()[group].size());
  for (std::size_t i = 0; i < in.operands.size(); ++i) {
    if (in.operands[i].group != group) {
      in.refuse("operands of different groups", "group " + std::to_string(group),
                "group " + std::to_string(in.operands[i].group), "Move one with send");
    }
    const int updater = program.updated_by(op.operands[i]);
    if (updater >= 0) {
      in.refuse("%" + std::to_string(op.operands[i]) + " has been updated in place",
                "its new value %" + std::to_string(updater), {}, "Use what update returned");
    }
  }
  if (computes(op.kind) && in.operands[0].dtype == DType::e4m3) {
    in.refuse("e4m3 is not computed with, only cast, moved and multiplied by scaled_matmul", "f32, bf16 or f16", "e4m3",
              "cast first");
  }
  switch (op.kind) {
    case OpKind::input:
      return infer_input(in);
    case OpKind::constant:
      return {op.dtype, {}, op.group, {}};
    case OpKind::pointwise:
      return infer_pointwise(in);
    case OpKind::cast:
      return infer_cast(in);
    case OpKind::matmul:
      return infer_matmul(in);
    case OpKind::scaled_matmul:
      return infer_scaled_matmul(in);
    case OpKind::softmax:
    case OpKind::layer_norm:
    case OpKind::rms_norm:
      return infer_rows(in);
    case OpKind::reduce_dim:
      return infer_reduce_dim(in);
    case OpKind::reshape:
      return infer_reshape(in);
    case OpKind::transpose:
      return infer_transpose(in);
    case OpKind::slice:
      return infer_slice(in);
    case OpKind::gather_rows:
      return infer_gather_rows(in);
    case OpKind::embedding_bag:
      return infer_embedding_bag(in);
    case OpKind::update:
      return infer_update(in);
    case OpKind::shard:
    case OpKind::all_reduce:
    case OpKind::reduce_scatter:
    case OpKind::all_gather:
    case OpKind::all_to_all:
    case OpKind::all_to_all_v:
    case OpKind::broadcast:
    case OpKind::reduce:
    case OpKind::send:
      break;
  }
  return infer_communication(in);
}

}  // namespace tileway
