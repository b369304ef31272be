// Element-wise functions.
#pragma once

#include "tileway/walk.cuh"

namespace tileway {

// The functions of tileway/function.hpp, in its order.
enum class Function : u32 {
  neg, abs, exp, log, sqrt, rsqrt, tanh, erf, sigmoid, relu, gelu, silu,
  add, sub, mul, div, maximum, minimum, greater, equal,
  where,
};

template <typename W>
__device__ inline W apply(Function function, W a, W b, W c) {
  switch (function) {
    case Function::neg:
      return -a;
    case Function::abs:
      return a < 0 ? -a : a == 0 ? W{0} : a;
    case Function::relu:
      return a < 0 ? W{0} : a;
    case Function::add:
      return a + b;
    case Function::sub:
      return a - b;
    case Function::mul:
      return a * b;
    case Function::maximum:  // a NaN on either side stays
      return a != a || a > b ? a : b;
    case Function::minimum:
      return a != a || a < b ? a : b;
    case Function::greater:
      return a > b ? W{1} : W{0};
    case Function::equal:
      return a == b ? W{1} : W{0};
    case Function::where:
      return a != 0 ? b : c;
    default:
      break;
  }
  if constexpr (!is_integer<W>) {
    switch (function) {
      case Function::exp:
        return expf(a);
      case Function::log:
        return logf(a);
      case Function::sqrt:
        return sqrtf(a);
      case Function::rsqrt:
        return 1 / sqrtf(a);
      case Function::tanh:
        return tanhf(a);
      case Function::erf:
        return erff(a);
      case Function::sigmoid:
        return 1 / (1 + expf(-a));
      case Function::gelu:
        return a * (1 + erff(a * 0.70710678118654752F)) / 2;
      case Function::silu:
        return a / (1 + expf(-a));
      case Function::div:
        return a / b;
      default:
        break;
    }
  }
  return W{0};
}

// Packs of `width` elements of the write, single elements of what broadcasts along its last dimension.
template <typename T, u32 width>
__device__ inline void pointwise_packs(const Arguments& arguments) {
  const auto function = static_cast<Function>(arguments.body.function);
  const View to = width > 1 ? packed(arguments.writes[0], width) : arguments.writes[0];
  View from[3];
  bool along[3];  // reads packs, not one element for the whole row
  for (u32 r = 0; r < 3; ++r) {
    const View& read = arguments.reads[r < arguments.read_count ? r : 0];
    along[r] = width > 1 && read.dims > 0 && read.extent[read.dims - 1] != 1;
    from[r] = along[r] ? packed(read, width) : read;
  }
  for_each(volume(to), [&](u32 flat) {
    Pack<T, width> in[3];
#pragma unroll
    for (u32 r = 0; r < 3; ++r) {
      if (r >= arguments.read_count) {
        in[r] = in[0];
        continue;
      }
      const i64 offset = offset_at(to, from[r], flat);
      if (along[r]) {
        in[r] = *at<Pack<T, width>>(from[r], offset);
      } else {
        const T value = *at<T>(from[r], offset);
#pragma unroll
        for (u32 i = 0; i < width; ++i) in[r].elements[i] = value;
      }
    }
    Pack<T, width> out;
#pragma unroll
    for (u32 i = 0; i < width; ++i) {
      out.elements[i] = narrow<T>(
          apply<Wide<T>>(function, widen(in[0].elements[i]), widen(in[1].elements[i]), widen(in[2].elements[i])));
    }
    *at<Pack<T, width>>(to, offset_at(to, flat)) = out;
  });
}

template <typename T>
__device__ inline void pointwise(const Arguments& arguments) {
  constexpr u32 kWidth = 8 / sizeof(T) > 0 ? 8 / sizeof(T) : 1;
  const View& to = arguments.writes[0];
  bool wide = kWidth > 1 && packs(to, kWidth, sizeof(T));
  for (u32 r = 0; r < arguments.read_count; ++r) {
    const View& read = arguments.reads[r];
    const bool one = read.dims == 0 || read.extent[read.dims - 1] == 1;
    wide = wide && (one || packs(read, kWidth, sizeof(T)));
  }
  if (wide) {
    pointwise_packs<T, kWidth>(arguments);
  } else {
    pointwise_packs<T, 1>(arguments);
  }
}

}  // namespace tileway
