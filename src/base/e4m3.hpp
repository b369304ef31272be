// e4m3: one sign, four bits of exponent with bias 7, three behind the point; see tileway/dtype.hpp.
#pragma once

#include <bit>
#include <cstdint>

namespace tileway {

struct E4m3 {
  std::uint8_t bits = 0;

  E4m3() = default;
  // To nearest even, beyond the largest to the largest; NaN to 0x7f.
  explicit E4m3(float value) : bits(rounded(value)) {}
  explicit operator float() const {
    constexpr std::uint32_t kNan = 0x7f;
    const std::uint32_t magnitude = bits & 0x7fU;
    if (magnitude == kNan) return std::bit_cast<float>(0x7fc00000U);
    // The same bits as a float's lowest of exponent and highest behind the point: there biases differ by 120.
    return std::bit_cast<float>((bits & 0x80U) << 24 | magnitude << 20) * 0x1p120F;
  }
  explicit operator double() const { return static_cast<float>(*this); }

 private:
  static std::uint8_t rounded(float value) {
    constexpr std::uint32_t kInfinity = 0x7f800000;  // these are bits of floats
    constexpr std::uint32_t kLargest = 0x43e00000;   // 448
    constexpr std::uint32_t kNormal = 0x3c800000;    // 2^-6
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t magnitude = bits & 0x7fffffffU;
    if (magnitude > kInfinity) return 0x7f;
    std::uint32_t code = 0x7e;
    if (magnitude < kNormal) {
      // Numbers near 2^14 are as far apart as denormal ones of e4m3, 2^-9: the sum is rounded as it should be.
      code = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0x1p14F) -
             std::bit_cast<std::uint32_t>(0x1p14F);
    } else if (magnitude < kLargest) {
      code = ((magnitude + 0x7ffff + (magnitude >> 20 & 1)) >> 20) - (120U << 3);
    }
    return static_cast<std::uint8_t>(bits >> 24 & 0x80) | static_cast<std::uint8_t>(code);
  }
};

}  // namespace tileway
