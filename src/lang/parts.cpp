#include "tileway/error.hpp"
#include "tileway/program.hpp"

namespace tileway {

Array local_part(const Array& whole, const TensorType& type, int member) {
  TW_REQUIRE(!type.placement.is_partial(), ErrorKind::invalid, .where = to_string(type),
             .what = "a Partial has no parts");
  TW_REQUIRE(whole.shape() == type.shape, ErrorKind::invalid, .where = "part of an array",
             .what = "the array does not fit the tensor", .expected = to_string(type.shape),
             .got = to_string(whole.shape()));
  Box box = Box::whole(type.local_shape(member));
  if (type.placement.is_shard()) box.start[type.placement.dim] = type.shard_start(member);
  return whole.slice(box);
}

Array joined(const std::vector<Array>& parts, const TensorType& type) {
  TW_REQUIRE(!parts.empty(), ErrorKind::invalid, .where = to_string(type), .what = "no parts");
  if (type.placement.is_replicate()) return parts[0];
  Array whole(parts[0].dtype(), type.shape);
  if (type.placement.is_partial()) {
    for (std::int64_t i = 0; i < whole.size(); ++i) {
      double total = parts[0].at(i);
      for (std::size_t m = 1; m < parts.size(); ++m) {
        const double value = parts[m].at(i);
        total = type.placement.op == ReduceOp::max   ? std::max(total, value)
                : type.placement.op == ReduceOp::min ? std::min(total, value)
                                                     : total + value;
      }
      whole.set(i, total);
    }
    return whole;
  }
  const auto dim = static_cast<std::size_t>(type.placement.dim);
  const Dims strides = row_major_strides(type.shape);
  for (std::size_t m = 0; m < parts.size(); ++m) {
    const Array& part = parts[m];
    Dims at = Dims::filled(part.shape().size(), 0);
    for (std::int64_t i = 0; i < part.size(); ++i) {
      std::int64_t offset = type.shard_start(static_cast<int>(m)) * strides[dim];
      for (std::size_t d = 0; d < at.size(); ++d) offset += at[d] * strides[d];
      whole.set(offset, part.at(i));
      for (std::size_t d = at.size(); d-- > 0;) {
        if (++at[d] < part.shape()[d]) break;
        at[d] = 0;
      }
    }
  }
  return whole;
}

}  // namespace tileway
