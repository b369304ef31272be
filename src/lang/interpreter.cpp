#include "lang/interpreter.hpp"

#include <fmt/format.h>

#include "tileway/error.hpp"

namespace tileway {
namespace interpreter {

Value zeros(const Shape& shape) { return {shape, std::vector<double>(static_cast<std::size_t>(volume(shape)), 0.0)}; }

std::int64_t offset_of(const Shape& shape, const Dims& at) {
  std::int64_t offset = 0;
  for (std::size_t d = 0; d < shape.size(); ++d) offset = offset * shape[d] + at[d];
  return offset;
}

Value narrow(const Value& value, std::size_t dim, std::int64_t start, std::int64_t extent) {
  Shape shape = value.shape;
  shape[dim] = extent;
  Value part = zeros(shape);
  for_each(shape, [&](Dims at, std::int64_t offset) {
    at[dim] += start;
    part.data[offset] = value.data[offset_of(value.shape, at)];
  });
  return part;
}

void round_to(Value& value, DType dtype, bool exact) {
  if (exact && is_floating(dtype)) return;
  Array one(dtype, {});
  for (double& element : value.data) {
    one.set(0, element);
    element = one.at(0);
  }
}

namespace {

Value from_array(const Array& array) { return {array.shape(), array.values()}; }

Array to_array(const Value& value, DType dtype, bool exact) {
  return Array::from(exact && is_floating(dtype) ? DType::f64 : dtype, value.shape, value.data);
}

// Where the result is sharded along what the operand holds whole, the operand's part that goes with it: dimensions
// align at the last.
Value cut_to_match(const Value& operand, const TensorType& from, const TensorType& to, int member) {
  if (!to.placement.is_shard() || from.placement.is_shard()) return operand;
  const int dim = to.placement.dim - static_cast<int>(to.shape.size() - from.shape.size());
  if (dim < 0 || from.shape[dim] == 1) return operand;
  return narrow(operand, static_cast<std::size_t>(dim), to.shard_start(member), to.placement.sizes[member]);
}

// Only these relate operand and result dimension by dimension.
bool cuts_operands(const Op& op, std::size_t operand) {
  if (op.kind == OpKind::pointwise) return true;
  if (op.kind == OpKind::scaled_matmul) return operand >= 2;  // what shards the product is a sharded side, never cut
  if (op.kind != OpKind::matmul) return false;
  // Rows belong to the left side, columns to the right; batch dimensions to both.
  const int last = static_cast<int>(op.type.shape.size()) - 1;
  const int foreign = operand == 0 ? last : last - 1;
  return op.type.placement.dim != foreign;
}

class Run {
 public:
  Run(const Program& program, Bindings& inputs, bool exact) : program_(program), inputs_(inputs), exact_(exact) {}

  Bindings all() {
    for (std::size_t i = 0; i < program_.ops().size(); ++i) values_.push_back(evaluate(program_.ops()[i]));
    for (const Op& op : program_.ops()) {
      if (op.kind == OpKind::update) store(program_.ops()[op.operands[0]], values_[op.operands[1]]);
    }
    Bindings outputs;
    for (const Program::Output& output : program_.outputs()) {
      const TensorType& type = program_.ops()[output.op].type;
      std::vector<Array>& arrays = outputs[output.name];
      arrays.resize(program_.world());
      for (std::size_t m = 0; m < ranks(type).size(); ++m)
        arrays[ranks(type)[m]] = to_array(values_[output.op][m], type.dtype, exact_);
    }
    return outputs;
  }

 private:
  const std::vector<int>& ranks(const TensorType& type) const { return program_.groups()[type.group]; }

  std::vector<Value> bound(const Op& op) {
    const std::string where = fmt::format("input '{}' of {}", op.name, program_.name());
    const auto found = inputs_.find(op.name);
    TW_REQUIRE(found != inputs_.end(), ErrorKind::invalid, .where = where, .what = "no value is given");
    TW_REQUIRE(static_cast<int>(found->second.size()) == program_.world(), ErrorKind::invalid, .where = where,
               .what = "not a value for every rank", .expected = std::to_string(program_.world()),
               .got = std::to_string(found->second.size()));
    std::vector<Value> values;
    for (std::size_t m = 0; m < ranks(op.type).size(); ++m) {
      const Array& array = found->second[ranks(op.type)[m]];
      const Shape expected = op.type.local_shape(static_cast<int>(m));
      const bool dtype_fits =
          array.dtype() == op.type.dtype || (exact_ && is_floating(op.type.dtype) && array.dtype() == DType::f64);
      TW_REQUIRE(dtype_fits && array.shape() == expected, ErrorKind::invalid,
                 .where = fmt::format("{}, rank {}", where, ranks(op.type)[m]), .what = "the array does not fit",
                 .expected = std::string(name_of(op.type.dtype)) + to_string(expected),
                 .got = std::string(name_of(array.dtype())) + to_string(array.shape()));
      values.push_back(from_array(array));
    }
    return values;
  }

  void store(const Op& state, const std::vector<Value>& values) {
    for (std::size_t m = 0; m < values.size(); ++m) {
      inputs_[state.name][ranks(state.type)[m]] = to_array(values[m], state.type.dtype, exact_);
    }
  }

  std::vector<Value> evaluate(const Op& op) {
    if (op.kind == OpKind::input) return bound(op);
    const std::size_t members = ranks(op.type).size();
    std::vector<Value> results;
    if (op.kind == OpKind::constant) {
      results.assign(members, {{}, {op.value}});
    } else if (is_communication(op.kind)) {
      std::vector<std::vector<Value>> operands;
      for (int operand : op.operands) operands.push_back(values_[operand]);
      results = communicate(program_, op, operands, exact_);
    } else {
      for (std::size_t m = 0; m < members; ++m) {
        std::vector<Value> operands;
        for (std::size_t k = 0; k < op.operands.size(); ++k) {
          const Value& held = values_[op.operands[k]][m];
          const TensorType& from = program_.ops()[op.operands[k]].type;
          operands.push_back(cuts_operands(op, k) ? cut_to_match(held, from, op.type, static_cast<int>(m)) : held);
        }
        results.push_back(compute(program_, op, static_cast<int>(m), operands, exact_));
      }
    }
    for (Value& value : results) round_to(value, op.type.dtype, exact_);
    return results;
  }

  const Program& program_;
  Bindings& inputs_;
  bool exact_;
  std::vector<std::vector<Value>> values_;  // [op][member]
};

}  // namespace
}  // namespace interpreter

Bindings interpret(const Program& program, Bindings& inputs, Arithmetic arithmetic) {
  return interpreter::Run(program, inputs, arithmetic == Arithmetic::exact).all();
}

}  // namespace tileway
