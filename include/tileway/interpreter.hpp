// The meaning of a program: all ranks in one process, one operation after the other. The oracle of every test.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tileway/array.hpp"
#include "tileway/program.hpp"

namespace tileway {

enum class Arithmetic {
  // In the declared dtypes with fp32 sums, rounding after each operation; operands of a tf32 product are rounded too.
  declared,
  // Floating tensors wholly in fp64; what comes out is f64. What errors are measured against, so nothing is rounded:
  // operands of a tf32 product neither.
  exact,
};

// What each world rank holds of each named tensor: [rank], an array of the local shape. Ranks outside the tensor's
// group hold an empty array.
using Bindings = std::map<std::string, std::vector<Array>>;

// Runs the program once. Inputs that the program updates are stored back into `inputs`. Integers are exact up to 2^53.
// Throws Error (invalid) for a missing input, a wrong dtype or shape, an index or a split out of range.
Bindings interpret(const Program& program, Bindings& inputs, Arithmetic arithmetic = Arithmetic::declared);

// How far outputs are from the exact interpreter's, over all names and ranks. The promise of every executor is
// error <= allowed, which is twice the error of the interpreter in the declared dtypes plus one rounding of the largest
// value; in a program with a scaled_matmul one to bf16 at least, in one with products of tf32 one to tf32, since tensor
// cores keep fewer bits of such sums. Where outputs have fewer than 32 elements, the error of the interpreter is the
// largest over several runs of it whose inputs differ a little, for a few elements may happen to be rounded well.
struct Accuracy {
  double error = 0;
  double reference = 0;
  double allowed = 0;
};
// `inputs` as they were before the run.
Accuracy measure_accuracy(const Program& program, const Bindings& inputs, const Bindings& outputs);

}  // namespace tileway
