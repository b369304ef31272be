// Element-wise functions: broadcasting, and how placements meet.
#include <algorithm>

#include "lang/infer.hpp"

namespace tileway {
namespace {

Shape broadcast(const Inference& in) {
  std::size_t dims = 0;
  for (const TensorType& operand : in.operands) dims = std::max(dims, operand.shape.size());
  Shape shape = Shape::filled(dims, 1);
  for (const TensorType& operand : in.operands) {
    const std::size_t shift = dims - operand.shape.size();
    for (std::size_t d = 0; d < operand.shape.size(); ++d) {
      const std::int64_t extent = operand.shape[d];
      if (extent == 1 || extent == shape[shift + d]) continue;
      if (shape[shift + d] != 1) in.refuse("the shapes do not broadcast");
      shape[shift + d] = extent;
    }
  }
  return shape;
}

// Sums of partials are partial; so is a partial scaled by what every rank agrees on.
Placement partial_result(const Inference& in) {
  const Function function = in.op.function;
  const bool additive = function == Function::add || function == Function::sub;
  const bool scaling = function == Function::mul || function == Function::div;
  const auto is_sum = [](const TensorType& type) { return type.placement == Partial(ReduceOp::sum); };
  const auto partials = std::count_if(in.operands.begin(), in.operands.end(),
                                      [](const auto& type) { return type.placement.is_partial(); });
  const bool all_sums = std::all_of(in.operands.begin(), in.operands.end(), is_sum);
  if (function == Function::neg && all_sums) return Partial();
  if (additive && all_sums) return Partial();
  if (scaling && partials == 1) {
    const std::size_t other = is_sum(in.operands[0]) ? 1 : 0;
    const bool numerator = function == Function::mul || other == 1;
    if (is_sum(in.operands[1 - other]) && in.operands[other].placement.is_replicate() && numerator) return Partial();
  }
  in.refuse("this function of a Partial is not the Partial of the function",
            "neg, add or sub of Partial(sum) alone, or a Partial(sum) scaled by a Replicate", {},
            "all_reduce or reduce_scatter the Partial first");
}

}  // namespace

TensorType infer_pointwise(const Inference& in) {
  const DType dtype = in.operands[0].dtype;
  for (const TensorType& operand : in.operands) {
    if (operand.dtype != dtype) {
      in.refuse("the dtypes differ", std::string(name_of(dtype)), std::string(name_of(operand.dtype)),
                "cast one of them");
    }
  }
  if (!is_floating(dtype) && !defined_on_integers(in.op.function)) {
    in.refuse("this function is not defined on integers", "f32, bf16 or f16", std::string(name_of(dtype)),
              "cast first");
  }
  TensorType type{dtype, broadcast(in), in.operands[0].group, Replicate()};
  const auto has_partial = std::any_of(in.operands.begin(), in.operands.end(),
                                       [](const auto& operand) { return operand.placement.is_partial(); });
  if (has_partial) {
    type.placement = partial_result(in);
    return type;
  }
  for (const TensorType& operand : in.operands) {
    if (!operand.placement.is_shard()) continue;
    const int shift = static_cast<int>(type.shape.size() - operand.shape.size());
    const Placement aligned = Shard(operand.placement.dim + shift, operand.placement.sizes);
    if (operand.shape[operand.placement.dim] != type.shape[aligned.dim]) {
      in.refuse("a sharded dimension would be broadcast", {}, to_string(operand), "all_gather it first");
    }
    if (type.placement.is_shard() && type.placement != aligned) {
      in.refuse("the operands are sharded differently", to_string(type.placement), to_string(aligned),
                "all_to_all or all_gather one of them");
    }
    type.placement = aligned;
  }
  return type;
}

}  // namespace tileway
