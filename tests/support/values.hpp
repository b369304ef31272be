// Writing down what ranks hold, for tests of the interpreter.
#pragma once

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "tileway/error.hpp"
#include "tileway/interpreter.hpp"

namespace tileway::testing {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

inline Array f32(const Shape& shape, const std::vector<double>& values) {
  return Array::from(DType::f32, shape, values);
}
inline Array bf16(const Shape& shape, const std::vector<double>& values) {
  return Array::from(DType::bf16, shape, values);
}
inline Array i32(const Shape& shape, const std::vector<double>& values) {
  return Array::from(DType::i32, shape, values);
}
inline Array i64(const Shape& shape, const std::vector<double>& values) {
  return Array::from(DType::i64, shape, values);
}

// The elements on each rank; none on a rank outside the group.
using PerRank = std::vector<std::vector<double>>;
inline PerRank held(const Bindings& bindings, const std::string& name) {
  PerRank all;
  for (const Array& array : bindings.at(name)) {
    all.push_back(array.bytes() == 0 ? std::vector<double>{} : array.values());
  }
  return all;
}

// What each rank holds of "y" after one run.
inline PerRank run(const Program& program, Bindings inputs, Arithmetic arithmetic = Arithmetic::declared) {
  return held(interpret(program, inputs, arithmetic), "y");
}

inline void expect_near(const std::vector<double>& expected, const std::vector<double>& got, double tolerance) {
  ASSERT_EQ(expected.size(), got.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(expected[i], got[i], tolerance) << "element " << i;
}

// The call is refused as invalid, with every one of `parts` in the text.
template <typename Call>
void expect_refusal(const Call& call, const std::vector<std::string>& parts) {
  try {
    call();
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid);
    const std::string text = error.what();
    for (const std::string& part : parts) {
      EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' is not in: " << text;
    }
  }
}

}  // namespace tileway::testing
