#include "tileway/shape.hpp"

#include <algorithm>

#include "tileway/error.hpp"

namespace tileway {
namespace {

constexpr std::int64_t kMaxElements = std::int64_t{1} << 40;

}  // namespace

Dims::Dims(std::span<const std::int64_t> values) {
  for (std::int64_t value : values) push_back(value);
}

Dims Dims::filled(std::size_t count, std::int64_t value) {
  Dims dims;
  for (std::size_t i = 0; i < count; ++i) dims.push_back(value);
  return dims;
}

void Dims::push_back(std::int64_t value) {
  TW_REQUIRE(count_ < kMaxDims, ErrorKind::invalid, .where = "shape", .what = "too many dimensions",
             .expected = "at most " + std::to_string(kMaxDims));
  values_[count_++] = value;
}

void Dims::erase(std::size_t i) {
  TW_ASSERT(i < count_);
  std::copy(begin() + i + 1, end(), begin() + i);
  --count_;
}

bool operator==(const Dims& a, const Dims& b) { return std::equal(a.begin(), a.end(), b.begin(), b.end()); }

std::int64_t volume(const Shape& shape) {
  std::int64_t product = 1;
  for (std::int64_t extent : shape) product *= extent;
  return product;
}

std::int64_t checked_volume(const Shape& shape, const std::string& where) {
  std::int64_t product = 1;
  for (std::int64_t extent : shape) {
    TW_REQUIRE(extent >= 0, ErrorKind::invalid, .where = where, .what = "a negative extent", .got = to_string(shape));
    TW_REQUIRE(extent == 0 || product <= kMaxElements / extent, ErrorKind::invalid, .where = where,
               .what = "the tensor is too large", .expected = "at most 2^40 elements", .got = to_string(shape));
    product *= extent;
  }
  return product;
}

Dims row_major_strides(const Shape& shape) {
  Dims strides = Dims::filled(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return strides;
}

std::string to_string(const Dims& dims) {
  std::string text = "[";
  for (std::size_t i = 0; i < dims.size(); ++i) text += (i ? ", " : "") + std::to_string(dims[i]);
  return text + "]";
}

bool Box::inside(const Shape& shape) const {
  if (start.size() != shape.size() || extent.size() != shape.size()) return false;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (start[i] < 0 || extent[i] < 0 || start[i] > shape[i] || extent[i] > shape[i] - start[i]) return false;
  }
  return true;
}

Box intersect(const Box& a, const Box& b) {
  Box common{a.start, a.extent};
  for (std::size_t i = 0; i < a.start.size(); ++i) {
    const std::int64_t low = std::max(a.start[i], b.start[i]);
    const std::int64_t high = std::min(a.start[i] + a.extent[i], b.start[i] + b.extent[i]);
    common.start[i] = low;
    common.extent[i] = std::max<std::int64_t>(0, high - low);
  }
  return common;
}

bool contiguous(const Box& box, const Shape& shape) {
  if (box.empty()) return true;
  std::size_t d = shape.size();
  while (d > 0 && box.extent[d - 1] == shape[d - 1]) --d;
  return std::all_of(box.extent.begin(), box.extent.begin() + static_cast<std::ptrdiff_t>(d - (d > 0)),
                     [](std::int64_t extent) { return extent == 1; });
}

bool overlaps(const Box& a, const Box& b) { return !intersect(a, b).empty(); }

std::string to_string(const Box& box) {
  std::string text = "[";
  for (std::size_t i = 0; i < box.start.size(); ++i) {
    text += (i ? ", " : "") + std::to_string(box.start[i]) + ":" + std::to_string(box.start[i] + box.extent[i]);
  }
  return text + "]";
}

}  // namespace tileway
