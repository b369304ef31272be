// copy, cast, transpose.
#pragma once

#include "tileway/walk.cuh"

namespace tileway {

// Packs of `width` elements, as many from `from` as there are in `to`, both in row-major order. Several are in flight
// at a time: a peer's memory is far away.
template <typename Bits, u32 width, u32 flight, typename Places>
__device__ inline void copy_packs(const View& from, const View& to) {
  using Unit = Pack<Bits, width>;
  const auto count = static_cast<u32>(volume(to)) / width;
  const Places from_places(from);
  const Places to_places(to);
  for (u32 first = worker(); first < count; first += flight * kWorkers) {
    Unit values[flight];
#pragma unroll
    for (u32 i = 0; i < flight; ++i)
      values[i] = *reinterpret_cast<const Unit*>(at<Bits>(from, from_places(together(first, i, count) * width)));
#pragma unroll
    for (u32 i = 0; i < flight; ++i) {
      const u32 flat = first + i * kWorkers;
      if (flat < count) *reinterpret_cast<Unit*>(at<Bits>(to, to_places(flat * width))) = values[i];
    }
  }
}
template <typename Bits, u32 width>
__device__ inline void copy_packs(const View& from, const View& to) {
  if (evenly_apart(from) && evenly_apart(to)) {
    copy_packs<Bits, width, 8, EvenPlaces>(from, to);
  } else {
    copy_packs<Bits, width, 2, AnyPlaces>(from, to);
  }
}

// Bits are moved, so only the size of the elements matters; sixteen bytes at a time where both sides allow it.
template <typename Bits>
__device__ inline void copy_view(const View& from, const View& to) {
  constexpr u32 kWidth = 16 / sizeof(Bits);
  if (from.align == 16 && to.align == 16) {
    copy_packs<Bits, kWidth>(from, to);
  } else {
    copy_packs<Bits, 1>(from, to);
  }
}

template <typename Bits>
__device__ inline void copy(const Arguments& arguments) {
  copy_view<Bits>(arguments.reads[0], arguments.writes[0]);
}

// From a double to an integer: cut towards zero, stopped at the bounds, NaN to 0; as cvt does it.
template <typename To, typename From>
__device__ inline To cast_element(From value) {
  if constexpr (is_integer<From> && is_integer<To>) {
    return static_cast<To>(value);
  } else if constexpr (same_type<To, i32>) {
    return __double2int_rz(static_cast<double>(widen(value)));
  } else if constexpr (same_type<To, i64>) {
    return __double2ll_rz(static_cast<double>(widen(value)));
  } else if constexpr (is_integer<From> && !same_type<To, float>) {
    // Through fp32 the value would be rounded twice: what fp32 does not hold goes to odd first.
    const auto exact = static_cast<double>(value);
    float narrowed = __double2float_rz(exact);
    if (static_cast<double>(narrowed) != exact) narrowed = __uint_as_float(__float_as_uint(narrowed) | 1);
    return narrow<To>(narrowed);
  } else {
    return narrow<To>(static_cast<float>(widen(value)));
  }
}

template <typename From, typename To>
__device__ inline void cast(const Arguments& arguments) {
  const View& from = arguments.reads[0];
  const View& to = arguments.writes[0];
  for_each(volume(to), [&](u32 flat) {
    *at<To>(to, offset_at(to, flat)) = cast_element<To>(*at<From>(from, offset_at(from, flat)));
  });
}

// Through a tile in shared memory where the last two dimensions change places would be faster; this is right for all.
template <typename Bits>
__device__ inline void transpose(const Arguments& arguments) {
  const View& from = arguments.reads[0];
  const View& to = arguments.writes[0];
  View seen = to;  // the read in the write's order of dimensions
  for (u32 d = 0; d < to.dims; ++d) seen.stride[d] = from.stride[arguments.body.dims[d]];
  for_each(volume(to), [&](u32 flat) { *at<Bits>(to, offset_at(to, flat)) = *at<Bits>(from, offset_at(seen, flat)); });
}

}  // namespace tileway
