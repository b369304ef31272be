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

// Whether a view is also one of packs of `width` elements of `bytes` bytes: rows of whole packs, all aligned.
__device__ inline bool packs(const View& view, u32 width, u32 bytes) {
  if (view.dims == 0 || view.extent[view.dims - 1] % width != 0) return false;
  if (view.data % (width * bytes) != 0 || view.slot_bytes % (width * bytes) != 0) return false;
  for (u32 d = 0; d + 1 < view.dims; ++d) {
    if (view.extent[d] != 1 && view.stride[d] % width != 0) return false;
  }
  return true;
}
// The view as one of packs. Its last dimension is contiguous.
__device__ inline View packed(const View& view, u32 width) {
  View result = view;
  for (u32 d = 0; d + 1 < view.dims; ++d) result.stride[d] = view.stride[d] / width;
  result.extent[view.dims - 1] = view.extent[view.dims - 1] / width;
  return result;
}

}  // namespace tileway
