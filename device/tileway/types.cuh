// Numbers: the widths that the device headers and the host agree on, and the elements of tensors.
#pragma once

// What host and device both call: nvcc wants to be told.
#ifdef __CUDACC__
#define TILEWAY_BOTH __host__ __device__
#else
#define TILEWAY_BOTH
#endif

namespace tileway {

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i32 = int;
using i64 = long long;

#ifdef __CUDACC__

// Elements that are stored in sixteen bits and computed with in fp32.
struct bf16 {
  u16 bits;
};
struct f16 {
  u16 bits;
};

// The type in which values of an element type are computed and summed.
template <typename T>
struct WideOf {
  using type = T;  // float, i32, i64
};
template <>
struct WideOf<bf16> {
  using type = float;
};
template <>
struct WideOf<f16> {
  using type = float;
};
template <typename T>
using Wide = typename WideOf<T>::type;

template <typename A, typename B>
inline constexpr bool same_type = false;
template <typename A>
inline constexpr bool same_type<A, A> = true;
template <typename T>
inline constexpr bool is_integer = same_type<T, i32> || same_type<T, i64>;

__device__ inline float infinity() { return __uint_as_float(0x7f800000u); }

template <typename T>
__device__ inline Wide<T> widen(T value) {
  return value;
}
template <>
__device__ inline float widen(bf16 value) {
  return __uint_as_float(static_cast<u32>(value.bits) << 16);
}
template <>
__device__ inline float widen(f16 value) {
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(value.bits));
  return wide;
}

// Rounded once, to nearest even.
template <typename T>
__device__ inline T narrow(Wide<T> value) {
  return value;
}
template <>
__device__ inline bf16 narrow<bf16>(float value) {
#if __CUDA_ARCH__ >= 900
  bf16 narrowed;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(narrowed.bits) : "f"(value));
  return narrowed;
#else
  const u32 bits = __float_as_uint(value);
  if (value != value) return {static_cast<u16>(bits >> 16 | 0x40)};
  return {static_cast<u16>((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
#endif
}
template <>
__device__ inline f16 narrow<f16>(float value) {
  f16 narrowed;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(narrowed.bits) : "f"(value));
  return narrowed;
}

#endif  // __CUDACC__

}  // namespace tileway
