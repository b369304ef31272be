// Host tile kernels: one function a Body::Kind. A kernel sees only the views that its task declared.
#pragma once

#include <cstddef>
#include <span>

#include "tileway/plan.hpp"

namespace tileway::host {

// A box of a buffer in memory: `extent[i]` elements, `strides[i]` elements apart (row-major, the last stride is 1).
struct View {
  std::byte* data = nullptr;
  DType dtype = DType::f32;
  Dims extent;
  Dims strides;
};

struct Arguments {
  const Body& body;
  std::span<const View> reads;
  std::span<const View> writes;
};

// Runs a body. Sums and functions in fp32 (integers exactly), rounded once to the dtype of the write. Throws Error
// (invalid) for data that is out of range: an index, a split. Assumes arguments that check_structure accepts.
void run_body(const Arguments& arguments);

}  // namespace tileway::host
