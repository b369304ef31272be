// Element-wise functions.
#pragma once

#include "tileway/walk.cuh"

namespace tileway {

// The functions of tileway/function.hpp, in its order.
enum class Function : u32 {
  neg,
  abs,
  exp,
  log,
  sqrt,
  rsqrt,
  tanh,
  erf,
  sigmoid,
  relu,
  gelu,
  silu,
  add,
  sub,
  mul,
  div,
  maximum,
  minimum,
  greater,
  equal,
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

// Whether a view is also one of packs of `width` elements of `bytes` bytes: rows of whole packs, all aligned.
__device__ inline bool packs(const View& view, u32 width, u32 bytes) {
  if (view.dims == 0 || view.extent[view.dims - 1] % width != 0) return false;
  if (view.data % (width * bytes) != 0) return false;
  for (u32 d = 0; d + 1 < view.dims; ++d) {
    if (view.extent[d] != 1 && view.stride[d] % width != 0) return false;
  }
  return true;
}

__device__ constexpr u32 arity(Function function) {
  return function == Function::where ? 3 : function >= Function::add ? 2 : 1;
}

// The function of packs of its operands; those that it has not are not looked at.
template <typename T, Function function, u32 width>
__device__ __forceinline__ Pack<T, width> apply_to(const Pack<T, width>& a, const Pack<T, width>& b,
                                                   const Pack<T, width>& c) {
  Pack<T, width> out;
#pragma unroll
  for (u32 i = 0; i < width; ++i) {
    out.elements[i] =
        narrow<T>(apply<Wide<T>>(function, widen(a.elements[i]), widen(b.elements[i]), widen(c.elements[i])));
  }
  return out;
}

// Reads with as many elements as the write, rows evenly apart: packs are told apart by their number alone, and several
// are loaded before the first is used.
template <typename T, Function function, u32 width>
__device__ inline void pointwise_alike(const Arguments& arguments) {
  using Unit = Pack<T, width>;
  constexpr u32 kReads = arity(function);
  constexpr u32 kFlight = 4;
  const View& to = arguments.writes[0];
  const EvenPlaces to_places(to);
  const u32 count = static_cast<u32>(volume(to)) / width;
  for (u32 first = worker(); first < count; first += kFlight * kWorkers) {
    Unit in[kReads][kFlight];
#pragma unroll
    for (u32 r = 0; r < kReads; ++r) {
      const View& read = arguments.reads[r];
      const EvenPlaces places(read);
#pragma unroll
      for (u32 i = 0; i < kFlight; ++i)
        in[r][i] = *reinterpret_cast<const Unit*>(at<T>(read, places(together(first, i, count) * width)));
    }
#pragma unroll
    for (u32 i = 0; i < kFlight; ++i) {
      const u32 flat = first + i * kWorkers;
      const Unit out = apply_to<T, function>(in[0][i], in[min(1u, kReads - 1)][i], in[kReads - 1][i]);
      if (flat < count) *reinterpret_cast<Unit*>(at<T>(to, to_places(flat * width))) = out;
    }
  }
}

// Packs of `width` elements of the write, single elements of what broadcasts along its last dimension.
template <typename T, Function function, u32 width>
__device__ inline void pointwise_packs(const Arguments& arguments) {
  using Unit = Pack<T, width>;
  constexpr u32 kReads = arity(function);
  const View& to = arguments.writes[0];
  const auto along = [&](const View& read) { return read.dims > 0 && read.extent[read.dims - 1] != 1; };
  for_each(volume(to) / width, [&](u32 pack) {
    const u32 flat = pack * width;
    Unit in[kReads];
#pragma unroll
    for (u32 r = 0; r < kReads; ++r) {
      const View& read = arguments.reads[r];
      const T* from = at<T>(read, offset_at(to, read, flat));
      if (along(read)) {
        in[r] = *reinterpret_cast<const Unit*>(from);
      } else {
        const T value = *from;
#pragma unroll
        for (u32 i = 0; i < width; ++i) in[r].elements[i] = value;
      }
    }
    *reinterpret_cast<Unit*>(at<T>(to, offset_at(to, flat))) =
        apply_to<T, function>(in[0], in[min(1u, kReads - 1)], in[kReads - 1]);
  });
}

template <typename T, Function function>
__device__ inline void pointwise(const Arguments& arguments) {
  constexpr u32 kWidth = 8 / sizeof(T) > 0 ? 8 / sizeof(T) : 1;
  const View& to = arguments.writes[0];
  bool alike = evenly_apart(to);
  bool aligned = to.align == 16;
  bool wide = kWidth > 1 && packs(to, kWidth, sizeof(T));
  for (u32 r = 0; r < arity(function); ++r) {
    const View& read = arguments.reads[r];
    const bool one = read.dims == 0 || read.extent[read.dims - 1] == 1;
    alike = alike && evenly_apart(read) && volume(read) == volume(to);
    aligned = aligned && read.align == 16;
    wide = wide && (one || packs(read, kWidth, sizeof(T)));
  }
  if (alike && aligned) {
    pointwise_alike<T, function, 16 / sizeof(T)>(arguments);
  } else if (wide) {
    pointwise_packs<T, function, kWidth>(arguments);
  } else {
    pointwise_packs<T, function, 1>(arguments);
  }
}

}  // namespace tileway
