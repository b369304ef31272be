// Products of matrices (matmul_parts.cuh) in fp32 on the CUDA cores: an element of C is fma(a, b, sum) over ascending k
// from 0, rounded once.
#pragma once

#include "tileway/matmul_parts.cuh"

namespace tileway {

struct MatmulPlain {
  static constexpr u32 kRows = 128;
  static constexpr u32 kColumns = 64;
  static constexpr u32 kDepth = 16;
  static constexpr u32 kPitch = kRows + 4;  // of a column of A, which lies across: fewer bank conflicts
  static constexpr u32 kFloats = kDepth * (kPitch + kColumns);
};

// Of shared memory: for two steps, and for the tile of C, which takes their place. The host may ask with a type of its
// own of the same size.
template <typename T>
constexpr u32 matmul_plain_shared_bytes() {
  constexpr u32 steps = 2 * MatmulPlain::kFloats * sizeof(float);
  constexpr u32 result = MatmulPlain::kRows * MatmulPlain::kColumns * sizeof(T);
  return steps > result ? steps : result;
}

}  // namespace tileway

#ifdef __CUDACC__

#include "tileway/epilogue.cuh"

namespace tileway {

// T: float, bf16 or f16. Shared memory: matmul_plain_shared_bytes<T>().
template <typename T, typename C = T, typename... Steps>
__device__ inline void matmul_plain(const Arguments& arguments) {
  using Shape = MatmulPlain;
  u8* shared = arguments.shared;
  __builtin_assume(__isShared(shared));
  const u32 first_row = worker() / 16 * 8;  // of 8 x 4 elements
  const u32 first_column = worker() % 16 * 4;
  const matmul::Parts<Shape::kRows, Shape::kColumns> parts{arguments};
  for (u32 index = 0; index < parts.count(); ++index) {
    const matmul::Part<T, C> part = parts.template at<T, C>(index);
    matmul::Operand<T, Shape::kRows, Shape::kDepth, false> a{part.a, part.stride_a, {}};
    matmul::Operand<T, Shape::kDepth, Shape::kColumns, false> b{part.b, part.stride_b, {}};
    i64 left = part.depth;  // not yet loaded
    const auto load = [&] {
      const i32 depth = static_cast<i32>(min(left, static_cast<i64>(Shape::kDepth)));
      a.load(part.rows, depth);
      b.load(depth, part.columns);
      a.from += Shape::kDepth;
      b.from += Shape::kDepth * b.stride;
      left -= Shape::kDepth;
    };
    float sums[8][4] = {};
    const u32 steps = static_cast<u32>((part.depth + Shape::kDepth - 1) / Shape::kDepth);
    load();
    for (u32 step = 0; step < steps; ++step) {
      float* columns_a = reinterpret_cast<float*>(shared) + step % 2 * Shape::kFloats;
      float* rows_b = columns_a + Shape::kDepth * Shape::kPitch;
      float* to_a = columns_a + worker() % Shape::kDepth * Shape::kPitch + worker() / Shape::kDepth;
#pragma unroll
      for (u32 i = 0; i < a.kCount; ++i) to_a[i * a.kApart] = widen(a.held[i]);
#pragma unroll
      for (u32 i = 0; i < b.kCount; ++i) rows_b[worker() + i * kWorkers] = widen(b.held[i]);
      sync_workers();  // and all are done with the step before, whose place the next one takes
      load();
#pragma unroll
      for (u32 k = 0; k < Shape::kDepth; ++k) {
        const float4* from_a = reinterpret_cast<const float4*>(columns_a + k * Shape::kPitch + first_row);
        const float4 low = from_a[0], high = from_a[1];
        const float4 four = *reinterpret_cast<const float4*>(rows_b + k * Shape::kColumns + first_column);
        const float row_values[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
        const float column_values[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
        for (u32 i = 0; i < 8; ++i)
#pragma unroll
          for (u32 j = 0; j < 4; ++j) sums[i][j] = __fmaf_rn(row_values[i], column_values[j], sums[i][j]);
      }
    }
    sync_workers();
    using Last = Epilogue<T, C, Steps...>;
#pragma unroll
    for (u32 i = 0; i < 8; ++i)
#pragma unroll
      for (u32 j = 0; j < 4; j += 2)
        matmul::stage_two<typename Last::Between, Shape::kColumns>(shared, first_row + i, first_column + j, sums[i][j],
                                                                   sums[i][j + 1]);
    if constexpr (sizeof...(Steps) > 0)
      matmul::go_on<Last, C, Shape::kRows, Shape::kColumns>(shared, parts, part, index);
    matmul::store<Shape::kRows, Shape::kColumns>(shared, parts.template at<T, C>(index));
  }
}

}  // namespace tileway

#endif  // __CUDACC__
