#include "tileway/array.hpp"

#include <cmath>
#include <cstring>
#include <limits>

#include "base/element.hpp"

namespace tileway {

Array::Array(DType dtype, Shape shape) : dtype_(dtype), shape_(shape) {
  data_.resize(static_cast<std::size_t>(checked_volume(shape, "array")) * size_of(dtype));
}

Array Array::filled(DType dtype, Shape shape, double value) {
  Array array(dtype, shape);
  for (std::int64_t i = 0; i < array.size(); ++i) array.set(i, value);
  return array;
}

Array Array::from(DType dtype, Shape shape, const std::vector<double>& values) {
  Array array(dtype, shape);
  TW_REQUIRE(array.size() == static_cast<std::int64_t>(values.size()), ErrorKind::invalid, .where = "array",
             .what = "wrong number of values", .expected = std::to_string(array.size()),
             .got = std::to_string(values.size()));
  for (std::int64_t i = 0; i < array.size(); ++i) array.set(i, values[i]);
  return array;
}

double Array::at(std::int64_t index) const {
  return with_element_type(dtype_, [&]<typename T>(T) {
    T element;
    std::memcpy(&element, data_.data() + index * sizeof(T), sizeof(T));
    return static_cast<double>(element);
  });
}

void Array::set(std::int64_t index, double value) {
  with_element_type(dtype_, [&]<typename T>(T) {
    const T element = to_element<T>(value);
    std::memcpy(data_.data() + index * sizeof(T), &element, sizeof(T));
  });
}

std::vector<double> Array::values() const {
  std::vector<double> out(static_cast<std::size_t>(size()));
  for (std::int64_t i = 0; i < size(); ++i) out[i] = at(i);
  return out;
}

Array Array::cast(DType dtype) const {
  Array out(dtype, shape_);
  for (std::int64_t i = 0; i < size(); ++i) out.set(i, at(i));
  return out;
}

Array Array::slice(const Box& box) const {
  TW_REQUIRE(box.inside(shape_), ErrorKind::invalid, .where = "array", .what = "a slice outside the array",
             .expected = "inside " + to_string(shape_), .got = to_string(box));
  Array out(dtype_, box.extent);
  const std::size_t element = size_of(dtype_);
  const Dims strides = row_major_strides(shape_);
  Dims index = Dims::filled(shape_.size(), 0);
  for (std::int64_t i = 0; i < out.size(); ++i) {
    std::int64_t offset = 0;
    for (std::size_t d = 0; d < index.size(); ++d) offset += (box.start[d] + index[d]) * strides[d];
    std::memcpy(out.data() + i * element, data() + offset * element, element);
    for (std::size_t d = index.size(); d-- > 0;) {
      if (++index[d] < box.extent[d]) break;
      index[d] = 0;
    }
  }
  return out;
}

double max_difference(const Array& a, const Array& b) {
  TW_REQUIRE(a.shape() == b.shape(), ErrorKind::invalid, .where = "array", .what = "arrays of different shapes",
             .expected = to_string(a.shape()), .got = to_string(b.shape()));
  double largest = 0;
  for (std::int64_t i = 0; i < a.size(); ++i) {
    const double x = a.at(i);
    const double y = b.at(i);
    if (x == y || (std::isnan(x) && std::isnan(y))) continue;
    const double difference = std::abs(x - y);
    if (std::isnan(difference)) return std::numeric_limits<double>::infinity();
    largest = std::max(largest, difference);
  }
  return largest;
}

}  // namespace tileway
