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

// Elements that are stored in sixteen bits or eight and computed with in fp32.
struct bf16 {
  u16 bits;
};
struct f16 {
  u16 bits;
};
struct e4m3 {
  u8 bits;
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
template <>
struct WideOf<e4m3> {
  using type = float;
};
template <typename T>
using Wide = typename WideOf<T>::type;

template <typename A, typename B>
inline constexpr bool same_type = false;
template <typename A>
inline constexpr bool same_type<A, A> = true;
template <bool first, typename A, typename B>
struct ConditionalOf {
  using type = A;
};
template <typename A, typename B>
struct ConditionalOf<false, A, B> {
  using type = B;
};
template <bool first, typename A, typename B>
using Conditional = typename ConditionalOf<first, A, B>::type;
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

template <>
__device__ inline float widen(e4m3 value) {
  const u32 magnitude = value.bits & 0x7f;
  if (magnitude == 0x7f) return __uint_as_float(0x7fc00000u);
  // The same bits as a float's lowest of exponent and highest behind the point: there biases differ by 120.
  return __uint_as_float((value.bits & 0x80u) << 24 | magnitude << 20) * 0x1p120f;
}

// Rounded once, to nearest even; to e4m3, what lies beyond the largest becomes the largest.
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
template <>
__device__ inline e4m3 narrow<e4m3>(float value) {
#if __CUDA_ARCH__ >= 890
  u16 pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(value));
  return {static_cast<u8>(pair)};
#else  // as src/base/e4m3.hpp does it
  const u32 bits = __float_as_uint(value);
  const u32 magnitude = bits & 0x7fffffffu;
  if (value != value) return {0x7f};
  u32 code = 0x7e;
  if (magnitude < 0x3c800000u) {
    code = __float_as_uint(__uint_as_float(magnitude) + 0x1p14f) - 0x46800000u;
  } else if (magnitude < 0x43e00000u) {
    code = ((magnitude + 0x7ffff + (magnitude >> 20 & 1)) >> 20) - (120u << 3);
  }
  return {static_cast<u8>(bits >> 24 & 0x80 | code)};
#endif
}

#endif  // __CUDACC__

}  // namespace tileway
