// A dense row-major array in ordinary memory: what goes into a program and what comes out.
#pragma once

#include <cstdint>
#include <vector>

#include "tileway/dtype.hpp"
#include "tileway/shape.hpp"

namespace tileway {

class Array {
 public:
  Array() = default;                // no elements: what a rank outside a tensor's group holds
  Array(DType dtype, Shape shape);  // zeros
  static Array filled(DType dtype, Shape shape, double value);  // everywhere, rounded to the dtype
  // Rounds each value to the dtype (to nearest even). Throws Error (invalid) unless there are volume(shape) values.
  static Array from(DType dtype, Shape shape, const std::vector<double>& values);

  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  std::int64_t size() const { return volume(shape_); }
  std::size_t bytes() const { return data_.size(); }
  std::byte* data() { return data_.data(); }
  const std::byte* data() const { return data_.data(); }

  double at(std::int64_t index) const;
  void set(std::int64_t index, double value);
  std::vector<double> values() const;
  Array cast(DType dtype) const;
  // A copy of the elements in a box.
  Array slice(const Box& box) const;

  friend bool operator==(const Array& a, const Array& b) = default;  // same dtype, shape and bits

 private:
  DType dtype_ = DType::f32;
  Shape shape_{0};
  std::vector<std::byte> data_;
};

// max |a - b| over all elements; infinity where one is NaN and the other is not. Throws Error (invalid) on shapes
// that differ.
double max_difference(const Array& a, const Array& b);

}  // namespace tileway
