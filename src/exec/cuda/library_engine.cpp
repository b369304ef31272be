#include "exec/cuda/library_engine.hpp"

#include <algorithm>

namespace tileway::cuda {
namespace {

// Of an operand along a leading dimension of the result: dimensions align at the last, and an extent of 1 or no
// dimension at all is one for all.
i64 stride_along(const View& operand, const View& result, u32 dim) {
  const u32 missing = result.dims - operand.dims;
  if (dim < missing || operand.extent[dim - missing] == 1) return 0;
  return operand.stride[dim - missing];
}

Products::Matrices matrices_of(const View& view) { return {view.data, view.stride[view.dims - 2], 0}; }

}  // namespace

std::vector<Products> products_of(const View& a, const View& b, const View& c, DType dtype, bool tf32) {
  if (std::any_of(c.extent, c.extent + c.dims, [](i64 extent) { return extent == 0; })) return {};
  std::vector<Products> calls{{.dtype = dtype,
                               .tf32 = tf32,
                               .m = c.extent[c.dims - 2],
                               .n = c.extent[c.dims - 1],
                               .k = a.extent[a.dims - 1],
                               .count = 1,
                               .a = matrices_of(a),
                               .b = matrices_of(b),
                               .c = matrices_of(c)}};
  for (u32 d = c.dims - 2; d-- > 0;) {
    const i64 extent = c.extent[d];
    if (extent == 1) continue;
    const i64 along_a = stride_along(a, c, d);
    const i64 along_b = stride_along(b, c, d);
    const i64 along_c = c.stride[d];
    Products& first = calls.front();
    const bool alone = calls.size() == 1;
    const bool more_rows = first.count == 1 && along_b == 0 && along_a == first.m * first.a.row_stride &&
                           along_c == first.m * first.c.row_stride;
    const bool evenly = first.count == 1 || (along_a == first.count * first.a.batch_stride &&
                                             along_b == first.count * first.b.batch_stride &&
                                             along_c == first.count * first.c.batch_stride);
    if (alone && more_rows) {
      first.m *= extent;
    } else if (alone && evenly) {
      if (first.count == 1) {
        first.a.batch_stride = along_a;
        first.b.batch_stride = along_b;
        first.c.batch_stride = along_c;
      }
      first.count *= extent;
    } else {
      const std::vector<Products> here = calls;
      for (i64 i = 1; i < extent; ++i) {
        for (Products call : here) {
          call.a.first += static_cast<Address>(i * along_a) * size_of(dtype);
          call.b.first += static_cast<Address>(i * along_b) * size_of(dtype);
          call.c.first += static_cast<Address>(i * along_c) * size_of(dtype);
          calls.push_back(call);
        }
      }
    }
  }
  return calls;
}

}  // namespace tileway::cuda
