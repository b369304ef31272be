// Host types of the dtypes, and one switch over them.
#pragma once

#include <Eigen/Core>
#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include "base/e4m3.hpp"
#include "tileway/dtype.hpp"
#include "tileway/error.hpp"

namespace tileway {

// Calls `body` with a value of the host type of the dtype: body(float{}), body(Eigen::bfloat16{}), ...
template <typename Body>
decltype(auto) with_element_type(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::f32:
      return std::forward<Body>(body)(float{});
    case DType::bf16:
      return std::forward<Body>(body)(Eigen::bfloat16{});
    case DType::f16:
      return std::forward<Body>(body)(Eigen::half{});
    case DType::e4m3:
      return std::forward<Body>(body)(E4m3{});
    case DType::i32:
      return std::forward<Body>(body)(std::int32_t{});
    case DType::i64:
      return std::forward<Body>(body)(std::int64_t{});
    case DType::f64:
      break;
  }
  TW_ASSERT(dtype == DType::f64);
  return std::forward<Body>(body)(double{});
}

// The type in which values of an element type are computed and summed.
template <typename T>
using Wide = std::conditional_t<std::is_same_v<T, double> || std::is_integral_v<T>, T, float>;

// From a double to an element, rounded once to nearest even. Through float a double would round twice; that shows only
// for doubles that no float holds, so such values go to odd first. Integers are cut towards zero and stop at their
// bounds; NaN becomes 0.
template <typename T>
T to_element(double value) {
  if constexpr (sizeof(T) < sizeof(float)) {
    float narrowed = static_cast<float>(value);
    const double back = static_cast<double>(narrowed);
    if (back != value && value == value && narrowed - narrowed == 0.0F) {
      auto bits = std::bit_cast<std::uint32_t>(narrowed);
      const bool away = (back > value) == (value > 0);  // |narrowed| > |value|
      if (away) bits -= 1;
      bits |= 1;
      narrowed = std::bit_cast<float>(bits);
    }
    return T(narrowed);
  } else if constexpr (std::is_integral_v<T>) {
    using Limits = std::numeric_limits<T>;
    constexpr double kLowest = static_cast<double>(Limits::lowest());
    if (value != value) return 0;
    if (value <= kLowest) return Limits::lowest();
    if (value >= -kLowest) return Limits::max();  // -kLowest is one more than the highest, which i64 has no double for
    return static_cast<T>(value);
  } else {
    return static_cast<T>(value);
  }
}

}  // namespace tileway
