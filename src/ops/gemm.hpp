// The product of the GEMM operators, for any dtype.
#pragma once

#include "tileway/program.hpp"

namespace tileway {

// The input "w", [k, n] in the product's view. That of e4m3 is [n, k], K-major, as scaled_matmul takes it.
Tensor gemm_weight(Program& program, DType dtype, std::int64_t k, std::int64_t n, Placement placement,
                   Where where = Where::current());
// x w, in their dtype. Of e4m3: in bf16, scaled by the inputs "x_scale", one for each row of x, and "w_scale", one for
// each column of w.
Tensor gemm(Tensor x, Tensor w, Where where = Where::current());

}  // namespace tileway
