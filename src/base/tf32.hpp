// tf32: the numbers of fp32 that have at most 10 bits behind the point.
#pragma once

#include <bit>
#include <cstdint>

namespace tileway {

// To nearest, ties away from zero, as cvt.rna.tf32.f32 does. What lies beyond the largest number of tf32 by half a step
// or more becomes an infinity; denormal numbers are rounded at the same bit; NaN and infinities stay.
inline float rounded_to_tf32(float value) {
  constexpr std::uint32_t kStep = 1U << 13;  // fp32 has 13 bits more
  if (value - value != 0.0F) return value;
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return std::bit_cast<float>((bits + kStep / 2) & ~(kStep - 1));
}

}  // namespace tileway
