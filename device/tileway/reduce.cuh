// Combining elements: along a dimension, and over the ranks' partials.
#pragma once

#include "tileway/move.cuh"

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

// `op` over all reads, two at least, in their order: fp32 (integers exactly), rounded once, to every write. Reads may
// have other shapes than the writes, with as many elements, taken in row-major order. Two ranks' elements are loaded at
// a time, with no branch before the second's are used: behind one the compiler would load them when the first are
// there.
template <typename T, ReduceOp op, u32 width, u32 flight, typename Places>
__device__ inline void reduce_packs(const Arguments& arguments) {
  using W = Wide<T>;
  using Unit = Pack<T, width>;
  const auto count = static_cast<u32>(volume(arguments.writes[0])) / width;
  for (u32 first = worker(); first < count; first += flight * kWorkers) {
    Unit one[flight];
    Unit other[flight];
    W totals[flight][width];
    const auto load = [&](Unit(&values)[flight], u32 rank) {
      const View& view = arguments.reads[rank];
      const Places places(view);
#pragma unroll
      for (u32 i = 0; i < flight; ++i)
        values[i] = *reinterpret_cast<const Unit*>(at<T>(view, places(together(first, i, count) * width)));
    };
    const auto add = [&](const Unit(&values)[flight]) {
#pragma unroll
      for (u32 i = 0; i < flight; ++i) {
#pragma unroll
        for (u32 e = 0; e < width; ++e) totals[i][e] = combine(op, totals[i][e], widen(values[i].elements[e]));
      }
    };
    load(one, 0);
    load(other, 1);
#pragma unroll
    for (u32 i = 0; i < flight; ++i) {
#pragma unroll
      for (u32 e = 0; e < width; ++e) totals[i][e] = widen(one[i].elements[e]);
    }
    add(other);
    u32 rank = 2;
#pragma unroll 1
    for (; rank + 1 < arguments.read_count; rank += 2) {
      load(one, rank);
      load(other, rank + 1);
      add(one);
      add(other);
    }
    if (rank < arguments.read_count) {
      load(one, rank);
      add(one);
    }
#pragma unroll
    for (u32 i = 0; i < flight; ++i) {
#pragma unroll
      for (u32 e = 0; e < width; ++e) one[i].elements[e] = narrow<T>(totals[i][e]);
    }
    for (u32 w = 0; w < arguments.write_count; ++w) {
      const View& to = arguments.writes[w];
      const Places places(to);
#pragma unroll
      for (u32 i = 0; i < flight; ++i) {
        const u32 flat = first + i * kWorkers;
        if (flat < count) *reinterpret_cast<Unit*>(at<T>(to, places(flat * width))) = one[i];
      }
    }
  }
}
template <typename T, ReduceOp op, u32 width>
__device__ inline void reduce_packs(const Arguments& arguments, bool even) {
  constexpr u32 kFlight = width * sizeof(Wide<T>) <= 32 ? 8 : 4;
  if (even) {
    reduce_packs<T, op, width, kFlight, EvenPlaces>(arguments);
  } else {
    reduce_packs<T, op, width, 1, AnyPlaces>(arguments);
  }
}

template <typename T, ReduceOp op>
__device__ inline void reduce_ranks(const Arguments& arguments) {
  if (arguments.read_count == 1) {
    for (u32 w = 0; w < arguments.write_count; ++w) copy_view<T>(arguments.reads[0], arguments.writes[w]);
    return;
  }
  bool wide = true;
  bool even = true;
  for (u32 v = 0; v < arguments.read_count + arguments.write_count; ++v) {
    const View& view = v < arguments.read_count ? arguments.reads[v] : arguments.writes[v - arguments.read_count];
    wide = wide && view.align == 16;
    even = even && evenly_apart(view);
  }
  if (wide) {
    reduce_packs<T, op, 16 / sizeof(T)>(arguments, even);
  } else {
    reduce_packs<T, op, 1>(arguments, even);
  }
}

}  // namespace tileway
