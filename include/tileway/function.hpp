// Element-wise functions: their names, how many operands they take, and on which element types they are defined.
#pragma once

#include <cstdint>
#include <string_view>

namespace tileway {

// Computed in fp32 (fp64 by the exact interpreter) and rounded once to the dtype; integers are computed exactly.
//   sigmoid(x) = 1 / (1 + exp(-x))      silu(x) = x * sigmoid(x)
//   gelu(x) = x * (1 + erf(x / sqrt 2)) / 2      (the exact form, as BERT has it)
//   greater(a, b), equal(a, b): 1 or 0 in the operands' dtype
//   where(c, a, b): a where c is not zero, else b
enum class Function : std::uint8_t {
  neg,
  abs,
  exp,
  log,
  sqrt,
  rsqrt,
  tanh,
  erf,
  sigmoid,
  relu,
  gelu,
  silu,  // one operand
  add,
  sub,
  mul,
  div,
  maximum,
  minimum,
  greater,
  equal,  // two
  where,  // three
};
inline constexpr int kFunctionCount = 21;

std::string_view name_of(Function function);
// Throws Error (invalid) for an unknown name.
Function parse_function(std::string_view text);
int operand_count(Function function);
// False for those that have no exact integer result: exp, log, div, gelu, ...
bool defined_on_integers(Function function);

}  // namespace tileway
