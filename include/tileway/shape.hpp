// Shapes and boxes: the coordinates that programs, plans and executors share.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace tileway {

inline constexpr std::size_t kMaxDims = 6;

// Up to kMaxDims extents or coordinates, held in place. Row-major: the last dimension is contiguous.
class Dims {
 public:
  Dims() = default;
  Dims(std::initializer_list<std::int64_t> values) : Dims(std::span(values.begin(), values.size())) {}
  // Throws Error (invalid) when there are more than kMaxDims.
  explicit Dims(std::span<const std::int64_t> values);
  static Dims filled(std::size_t count, std::int64_t value);

  std::size_t size() const { return count_; }
  bool empty() const { return count_ == 0; }
  std::int64_t& operator[](std::size_t i) { return values_[i]; }
  std::int64_t operator[](std::size_t i) const { return values_[i]; }
  std::int64_t& back() { return values_[count_ - 1]; }
  std::int64_t back() const { return values_[count_ - 1]; }
  std::int64_t* begin() { return values_.data(); }
  std::int64_t* end() { return values_.data() + count_; }
  const std::int64_t* begin() const { return values_.data(); }
  const std::int64_t* end() const { return values_.data() + count_; }
  void push_back(std::int64_t value);
  void erase(std::size_t i);

  friend bool operator==(const Dims& a, const Dims& b);

 private:
  std::array<std::int64_t, kMaxDims> values_{};
  std::uint8_t count_ = 0;
};

using Shape = Dims;

// Product of the extents; 1 for a scalar. The product of a valid Shape fits 63 bits (see checked_volume).
std::int64_t volume(const Shape& shape);
// Throws Error (invalid) for a negative extent or a product over 2^40 elements, so that no file can ask for more.
std::int64_t checked_volume(const Shape& shape, const std::string& where);
// Elements between neighbours in each dimension of a dense row-major array.
Dims row_major_strides(const Shape& shape);
// "[513, 1025]".
std::string to_string(const Dims& dims);

// A rectangle of elements in a buffer: `extent[i]` elements from `start[i]` on, in each dimension. Its strides are
// those of the buffer it lies in.
struct Box {
  Dims start;
  Dims extent;

  static Box whole(const Shape& shape) { return {Dims::filled(shape.size(), 0), shape}; }
  std::int64_t volume() const { return tileway::volume(extent); }
  bool empty() const { return volume() == 0; }
  bool inside(const Shape& shape) const;
  friend bool operator==(const Box& a, const Box& b) = default;
};

// The common part; empty extents where there is none. Both have the same number of dimensions.
Box intersect(const Box& a, const Box& b);
bool overlaps(const Box& a, const Box& b);
// Whether the elements of a box lie one after the other in a dense row-major array: it cuts one dimension at most,
// takes all of those inside it and one index of those around it.
bool contiguous(const Box& box, const Shape& shape);
// "[0:128, 256:512]".
std::string to_string(const Box& box);

}  // namespace tileway
