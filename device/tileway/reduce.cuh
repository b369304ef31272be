// Combining elements: along a dimension, and over the ranks' partials.
#pragma once

#include "tileway/walk.cuh"

namespace tileway {

enum class ReduceOp : u32 { sum, max, min, mean };

// Where a reduction begins.
template <typename W>
__device__ inline W identity(ReduceOp op) {
  if constexpr (same_type<W, float>) {
    return op == ReduceOp::max ? -infinity() : op == ReduceOp::min ? infinity() : 0.0F;
  } else {
    constexpr W kHighest = static_cast<W>(~u64{0} >> (65 - 8 * sizeof(W)));
    return op == ReduceOp::max ? -kHighest - 1 : op == ReduceOp::min ? kHighest : W{0};
  }
}

// A NaN on either side stays.
template <typename W>
__device__ inline W combine(ReduceOp op, W a, W b) {
  if (op == ReduceOp::max) return a != a || a > b ? a : b;
  if (op == ReduceOp::min) return a != a || a < b ? a : b;
  return a + b;
}

// One thread an element of the result, in the order of the dimension.
template <typename T>
__device__ inline void reduce_dim(const Arguments& arguments) {
  using W = Wide<T>;
  const View& from = arguments.reads[0];
  const auto op = static_cast<ReduceOp>(arguments.body.op);
  const auto dim = static_cast<u32>(arguments.body.dim);
  const i64 count = from.extent[dim];
  const i64 step = from.stride[dim];
  // The write with the reduced dimension put back, and the read at its first element: then both walk alike.
  View first = from;
  first.extent[dim] = 1;
  View to = first;
  to.data = arguments.writes[0].data;
  const bool dropped = arguments.writes[0].dims < from.dims;
  for (u32 d = 0; d < from.dims; ++d) {
    if (d != dim) to.stride[d] = arguments.writes[0].stride[dropped && d > dim ? d - 1 : d];
  }
  for_each(volume(first), [&](u32 flat) {
    const T* in = at<T>(from, offset_at(first, flat));
    W total = identity<W>(op);
    for (i64 k = 0; k < count; ++k) total = combine(op, total, widen(in[k * step]));
    if constexpr (same_type<W, float>) {
      if (op == ReduceOp::mean) total /= static_cast<float>(count);
    }
    *at<T>(to, offset_at(to, flat)) = narrow<T>(total);
  });
}

// `op` over all reads in their order: fp32 (integers exactly), rounded once, to every write. Reads may have other shapes
// than the writes, with as many elements, taken in row-major order.
template <typename T, u32 width>
__device__ inline void reduce_packs(const Arguments& arguments) {
  using W = Wide<T>;
  using Unit = Pack<T, width>;
  constexpr u32 kFlight = width * sizeof(W) <= 32 ? 4 : 2;
  const auto op = static_cast<ReduceOp>(arguments.body.op);
  const auto count = static_cast<u32>(volume(arguments.writes[0])) / width;
  for (u32 first = worker(); first < count; first += kFlight * kWorkers) {
    W totals[kFlight][width];
    // Two ranks' at a time: what they wait for is memory.
    for (u32 r = 0; r < arguments.read_count; r += 2) {
      const bool pair = r + 1 < arguments.read_count;
      const View& one = arguments.reads[r];
      const View& other = arguments.reads[pair ? r + 1 : r];
      const Places one_places(one);
      const Places other_places(other);
      Unit values[2][kFlight];
#pragma unroll
      for (u32 i = 0; i < kFlight; ++i) {
        const u32 flat = first + i * kWorkers;
        if (flat >= count) continue;
        values[0][i] = *reinterpret_cast<const Unit*>(at<T>(one, one_places(flat * width)));
        if (pair) values[1][i] = *reinterpret_cast<const Unit*>(at<T>(other, other_places(flat * width)));
      }
#pragma unroll
      for (u32 i = 0; i < kFlight; ++i) {
#pragma unroll
        for (u32 e = 0; e < width; ++e) {
          const W value = widen(values[0][i].elements[e]);
          totals[i][e] = r == 0 ? value : combine(op, totals[i][e], value);
          if (pair) totals[i][e] = combine(op, totals[i][e], widen(values[1][i].elements[e]));
        }
      }
    }
    Unit results[kFlight];
#pragma unroll
    for (u32 i = 0; i < kFlight; ++i) {
#pragma unroll
      for (u32 e = 0; e < width; ++e) results[i].elements[e] = narrow<T>(totals[i][e]);
    }
    for (u32 w = 0; w < arguments.write_count; ++w) {
      const View& to = arguments.writes[w];
      const Places to_places(to);
#pragma unroll
      for (u32 i = 0; i < kFlight; ++i) {
        const u32 flat = first + i * kWorkers;
        if (flat < count) *reinterpret_cast<Unit*>(at<T>(to, to_places(flat * width))) = results[i];
      }
    }
  }
}

template <typename T>
__device__ inline void reduce_ranks(const Arguments& arguments) {
  constexpr u32 kWidth = 16 / sizeof(T);
  bool wide = true;
  for (u32 w = 0; w < arguments.write_count; ++w) wide = wide && packs(arguments.writes[w], kWidth, sizeof(T));
  for (u32 r = 0; r < arguments.read_count; ++r) wide = wide && packs(arguments.reads[r], kWidth, sizeof(T));
  if (wide) {
    reduce_packs<T, kWidth>(arguments);
  } else {
    reduce_packs<T, 1>(arguments);
  }
}

}  // namespace tileway
