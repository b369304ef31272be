#include <cmath>
#include <cstring>
#include <iterator>

#include "tileway/error.hpp"
#include "tileway/program.hpp"

namespace tileway {
namespace {

std::string described(DType dtype, const Shape& shape) { return std::string(name_of(dtype)) + to_string(shape); }

void require_fit(const std::vector<Array>& parts, const TensorType& type) {
  TW_REQUIRE(!parts.empty(), ErrorKind::invalid, .where = to_string(type), .what = "no parts");
  TW_REQUIRE(!type.placement.is_shard() || parts.size() == type.placement.sizes.size(), ErrorKind::invalid,
             .where = to_string(type), .what = "not a part for every member",
             .expected = std::to_string(type.placement.sizes.size()), .got = std::to_string(parts.size()));
  for (std::size_t m = 0; m < parts.size(); ++m) {
    const Shape expected = type.local_shape(static_cast<int>(m));
    // The exact interpreter gives floating tensors in f64, whatever was declared.
    const DType dtype = parts[m].dtype();
    const bool exact = dtype == DType::f64 && is_floating(type.dtype);
    const bool dtype_fits = dtype == parts[0].dtype() && (dtype == type.dtype || exact);
    const bool filled = parts[m].bytes() == size_of(dtype) * static_cast<std::size_t>(volume(expected));
    TW_REQUIRE(dtype_fits && parts[m].shape() == expected && filled, ErrorKind::invalid, .where = to_string(type),
               .what = "the part of member " + std::to_string(m) + " does not fit",
               .expected = described(type.dtype, expected), .got = described(parts[m].dtype(), parts[m].shape()));
  }
}

// NaN wins, as it does in the collectives.
double combined(ReduceOp op, double a, double b) {
  if (op == ReduceOp::max) return std::isnan(a) || a > b ? a : b;
  if (op == ReduceOp::min) return std::isnan(a) || a < b ? a : b;
  return a + b;
}

}  // namespace

Array local_part(const Array& whole, const TensorType& type, int member) {
  TW_REQUIRE(!type.placement.is_partial(), ErrorKind::invalid, .where = to_string(type),
             .what = "a Partial has no parts");
  TW_REQUIRE(!type.placement.is_shard() || (member >= 0 && member < std::ssize(type.placement.sizes)),
             ErrorKind::invalid, .where = to_string(type), .what = "no such member",
             .expected = "0 to " + std::to_string(std::ssize(type.placement.sizes) - 1), .got = std::to_string(member));
  TW_REQUIRE(whole.shape() == type.shape, ErrorKind::invalid, .where = "part of an array",
             .what = "the array does not fit the tensor", .expected = to_string(type.shape),
             .got = to_string(whole.shape()));
  Box box = Box::whole(type.local_shape(member));
  if (type.placement.is_shard()) box.start[type.placement.dim] = type.shard_start(member);
  return whole.slice(box);
}

Array joined(const std::vector<Array>& parts, const TensorType& type) {
  require_fit(parts, type);
  if (type.placement.is_replicate()) return parts[0];
  Array whole(parts[0].dtype(), type.shape);
  if (type.placement.is_partial()) {
    for (std::int64_t i = 0; i < whole.size(); ++i) {
      double total = parts[0].at(i);
      for (std::size_t m = 1; m < parts.size(); ++m) total = combined(type.placement.op, total, parts[m].at(i));
      whole.set(i, total);
    }
    return whole;
  }
  // A member's part is [outer, its size, inner] elements; so is the whole with all sizes in a row.
  const auto dim = static_cast<std::size_t>(type.placement.dim);
  std::size_t inner = size_of(whole.dtype());
  for (std::size_t d = dim + 1; d < type.shape.size(); ++d) inner *= static_cast<std::size_t>(type.shape[d]);
  std::size_t outer = 1;
  for (std::size_t d = 0; d < dim; ++d) outer *= static_cast<std::size_t>(type.shape[d]);
  const std::size_t pitch = static_cast<std::size_t>(type.shape[dim]) * inner;
  for (std::size_t m = 0; m < parts.size(); ++m) {
    const std::size_t start = static_cast<std::size_t>(type.shard_start(static_cast<int>(m))) * inner;
    const std::size_t length = static_cast<std::size_t>(type.placement.sizes[m]) * inner;
    if (length == 0) continue;
    for (std::size_t o = 0; o < outer; ++o) {
      std::memcpy(whole.data() + o * pitch + start, parts[m].data() + o * length, length);
    }
  }
  return whole;
}

}  // namespace tileway
