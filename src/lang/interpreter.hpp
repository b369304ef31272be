// Inside the interpreter. Plain loops over elements, as obviously right as possible: this is the definition that
// everything else is held to, so it shares no code with lowering or kernels, base/tf32.hpp apart.
#pragma once

#include <vector>

#include "tileway/interpreter.hpp"

namespace tileway::interpreter {

// What one rank holds. Elements are exact in a double whatever the dtype (integers up to 2^53).
struct Value {
  Shape shape;
  std::vector<double> data;
};

Value zeros(const Shape& shape);
// The element at coordinates.
std::int64_t offset_of(const Shape& shape, const Dims& at);
// Calls visit(coordinates, offset) for every element in row-major order.
template <typename Visit>
void for_each(const Shape& shape, const Visit& visit) {
  Dims at = Dims::filled(shape.size(), 0);
  for (std::int64_t offset = 0; offset < volume(shape); ++offset) {
    visit(at, offset);
    for (std::size_t d = at.size(); d-- > 0;) {
      if (++at[d] < shape[d]) break;
      at[d] = 0;
    }
  }
}

// Elements [start, start + extent) of a dimension.
Value narrow(const Value& value, std::size_t dim, std::int64_t start, std::int64_t extent);

// A computation on one member: operands as that member holds them, already cut to match a sharded result. Accumulates
// in fp32, or in fp64 if `exact`; integers exactly. What it returns is not yet rounded to the dtype.
Value compute(const Program& program, const Op& op, int member, const std::vector<Value>& operands, bool exact);

// A communication: what each member of the result's group holds, from what each member of the operand's group holds.
std::vector<Value> communicate(const Program& program, const Op& op, const std::vector<std::vector<Value>>& operands,
                               bool exact);

// Rounds to the dtype once; floating values stay as they are if `exact`.
void round_to(Value& value, DType dtype, bool exact);

}  // namespace tileway::interpreter
