// Walking over the elements of views, in row-major order, by all workers.
#pragma once

#include "tileway/team.cuh"

namespace tileway {

// The offset of element `flat` of a box of `shape`'s extents in a view that is aligned with it at the last dimension;
// where the view has extent 1, or lacks the dimension, it stays in place: it broadcasts.
__device__ inline i64 offset_at(const View& shape, const View& view, u32 flat) {
  i64 offset = 0;
#pragma unroll 1
  for (i32 d = static_cast<i32>(shape.dims) - 1; d >= 0; --d) {
    const auto extent = static_cast<u32>(shape.extent[d]);
    const u32 rest = flat / extent;
    const i32 own = d - static_cast<i32>(shape.dims - view.dims);
    if (own >= 0 && view.extent[own] != 1) offset += static_cast<i64>(flat - rest * extent) * view.stride[own];
    flat = rest;
  }
  return offset;
}
__device__ inline i64 offset_at(const View& view, u32 flat) { return offset_at(view, view, flat); }

// Calls body(index) for 0 <= index < count. A task is a tile; the host refuses those of 2^31 elements, so that indices
// fit 32 bits: a division of 64 bits is slow.
template <typename Body>
__device__ inline void for_each(i64 count, const Body& body) {
  for (u32 i = worker(); i < static_cast<u32>(count); i += kWorkers) body(i);
}

// Elements that are moved or computed together.
template <typename T, u32 width>
struct alignas(sizeof(T) * width) Pack {
  T elements[width];
};
// Bytes are only moved; the compiler would take sixteen apart in registers.
template <>
struct alignas(16) Pack<u8, 16> {
  u32 words[4];
};

// The index of the `i`th of what a worker has under way together, of `count`; past the end the last. So a load depends
// on no branch: what is loaded under one the compiler keeps in memory, and waits there until it has come.
__device__ inline u32 together(u32 first, u32 i, u32 count) { return min(first + i * kWorkers, count - 1); }

// Where the elements of a view lie, in row-major order. Most boxes are rows evenly apart, and then a place takes one
// multiplication more than two; all others are walked dimension by dimension. Code that has many places in flight is
// made for each kind.
struct EvenPlaces {
  u32 columns;
  u32 reciprocal;
  u32 shift;
  i64 stride;

  __device__ __forceinline__ explicit EvenPlaces(const View& view)
      : columns(view.columns), reciprocal(view.reciprocal), shift(view.shift), stride(view.row_stride) {}
  __device__ __forceinline__ i64 operator()(u32 flat) const {
    const u32 row = __umulhi(2 * flat, reciprocal) >> shift;
    return row * stride + (flat - row * columns);
  }
};
struct AnyPlaces {
  const View& view;

  __device__ explicit AnyPlaces(const View& its) : view(its) {}
  __device__ i64 operator()(u32 flat) const { return offset_at(view, flat); }
};

__device__ __forceinline__ bool evenly_apart(const View& view) { return view.columns != 0; }

}  // namespace tileway
