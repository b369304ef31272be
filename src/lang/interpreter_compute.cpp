// Computations, one member at a time.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <type_traits>

#include "base/tf32.hpp"
#include "lang/interpreter.hpp"
#include "tileway/error.hpp"

namespace tileway::interpreter {
namespace {

// A is float (the declared precision) or double.
template <typename A>
double apply(Function function, A a, A b, A c) {
  switch (function) {
    case Function::neg:
      return -a;
    case Function::abs:
      return std::abs(a);
    case Function::exp:
      return std::exp(a);
    case Function::log:
      return std::log(a);
    case Function::sqrt:
      return std::sqrt(a);
    case Function::rsqrt:
      return A{1} / std::sqrt(a);
    case Function::tanh:
      return std::tanh(a);
    case Function::erf:
      return std::erf(a);
    case Function::sigmoid:
      return A{1} / (A{1} + std::exp(-a));
    case Function::relu:
      return a < 0 ? A{0} : a;
    case Function::gelu:
      return a * (A{1} + std::erf(a / std::sqrt(A{2}))) / A{2};
    case Function::silu:
      return a / (A{1} + std::exp(-a));
    case Function::add:
      return a + b;
    case Function::sub:
      return a - b;
    case Function::mul:
      return a * b;
    case Function::div:
      return a / b;
    case Function::maximum:
      return std::isnan(a) || a > b ? a : b;
    case Function::minimum:
      return std::isnan(a) || a < b ? a : b;
    case Function::greater:
      return a > b ? 1 : 0;
    case Function::equal:
      return a == b ? 1 : 0;
    case Function::where:
      return c != 0 ? a : b;
  }
  return 0;
}

// The element of a broadcast operand that belongs to the coordinates of the result.
double broadcast_at(const Value& value, const Dims& at) {
  const std::size_t shift = at.size() - value.shape.size();
  std::int64_t offset = 0;
  for (std::size_t d = 0; d < value.shape.size(); ++d)
    offset = offset * value.shape[d] + (value.shape[d] == 1 ? 0 : at[d + shift]);
  return value.data[offset];
}

template <typename A>
Value pointwise(const Op& op, const Shape& shape, const std::vector<Value>& operands) {
  Value result = zeros(shape);
  for_each(shape, [&](const Dims& at, std::int64_t offset) {
    std::vector<A> x(3, A{0});
    for (std::size_t k = 0; k < operands.size(); ++k) x[k] = static_cast<A>(broadcast_at(operands[k], at));
    const bool where = op.function == Function::where;
    result.data[offset] = where ? apply<A>(op.function, x[1], x[2], x[0]) : apply<A>(op.function, x[0], x[1], x[2]);
  });
  return result;
}

// Towards zero from floats to integers; what then lies outside their bounds stops at them when it is rounded. Between
// integers the low bits stay.
Value cast(const Op& op, DType from, const Value& x) {
  Value result = x;
  for (double& value : result.data) {
    if (is_floating(from) && !is_floating(op.dtype)) value = std::trunc(value);
    if (from == DType::i64 && op.dtype == DType::i32) {
      value = static_cast<std::int32_t>(static_cast<std::int64_t>(value));
    }
  }
  return result;
}

template <typename A>
Value matmul(const Shape& shape, const Value& a, const Value& b, Precision precision) {
  Value result = zeros(shape);
  const std::int64_t k = a.shape.back();
  const std::int64_t columns = b.shape.back();
  const std::size_t dims = shape.size();
  // Where the matrix of a side begins that belongs to the coordinates of the result.
  const auto matrix = [&](const Value& side, const Dims& at) {
    const std::size_t shift = dims - side.shape.size();
    std::int64_t index = 0;
    for (std::size_t d = 0; d + 2 < side.shape.size(); ++d)
      index = index * side.shape[d] + (side.shape[d] == 1 ? 0 : at[d + shift]);
    return side.data.data() + index * side.shape[side.shape.size() - 2] * side.shape.back();
  };
  const auto operand = [&](double value) {
    if constexpr (std::is_same_v<A, float>) {
      if (precision == Precision::tf32) return rounded_to_tf32(static_cast<float>(value));
    }
    return static_cast<A>(value);
  };
  for_each(shape, [&](const Dims& at, std::int64_t offset) {
    const double* row = matrix(a, at) + at[dims - 2] * k;
    const double* column = matrix(b, at) + at[dims - 1];
    A sum = 0;
    for (std::int64_t i = 0; i < k; ++i) sum += operand(row[i]) * operand(column[i * columns]);
    result.data[offset] = sum;
  });
  return result;
}

template <typename A>
Value scaled_matmul(const Shape& shape, const std::vector<Value>& operands) {
  Value result = zeros(shape);
  const std::int64_t k = operands[0].shape[1];
  for_each(shape, [&](const Dims& at, std::int64_t offset) {
    const double* a = operands[0].data.data() + at[0] * k;
    const double* b = operands[1].data.data() + at[1] * k;
    A sum = 0;
    for (std::int64_t i = 0; i < k; ++i) sum += static_cast<A>(a[i]) * static_cast<A>(b[i]);
    result.data[offset] =
        sum * static_cast<A>(broadcast_at(operands[2], at)) * static_cast<A>(broadcast_at(operands[3], at));
  });
  return result;
}

template <typename A>
Value rows(const Op& op, const std::vector<Value>& operands) {
  const Value& x = operands[0];
  Value result = zeros(x.shape);
  const std::int64_t length = x.shape.back();
  const auto count = static_cast<A>(length);
  for (std::int64_t start = 0; length > 0 && start < volume(x.shape); start += length) {
    const auto in = [&](std::int64_t i) { return static_cast<A>(x.data[start + i]); };
    const auto weight = [&](std::size_t k, std::int64_t i) { return static_cast<A>(operands[k].data[i]); };
    A sum = 0;
    if (op.kind == OpKind::softmax) {
      A largest = in(0);
      for (std::int64_t i = 1; i < length; ++i) largest = std::max(largest, in(i));
      for (std::int64_t i = 0; i < length; ++i) sum += std::exp(in(i)-largest);
      for (std::int64_t i = 0; i < length; ++i) result.data[start + i] = std::exp(in(i)-largest) / sum;
    } else if (op.kind == OpKind::layer_norm) {
      for (std::int64_t i = 0; i < length; ++i) sum += in(i);
      const A mean = sum / count;
      A squares = 0;
      for (std::int64_t i = 0; i < length; ++i) squares += (in(i)-mean) * (in(i)-mean);
      const A deviation = std::sqrt(squares / count + static_cast<A>(op.value));
      for (std::int64_t i = 0; i < length; ++i)
        result.data[start + i] = (in(i)-mean) / deviation * weight(1, i) + weight(2, i);
    } else {
      for (std::int64_t i = 0; i < length; ++i) sum += in(i)*in(i);
      const A size = std::sqrt(sum / count + static_cast<A>(op.value));
      for (std::int64_t i = 0; i < length; ++i) result.data[start + i] = in(i) / size * weight(1, i);
    }
  }
  return result;
}

template <typename A>
Value reduce_dim(const Op& op, const Shape& shape, const Value& x, DType dtype) {
  Value result = zeros(shape);
  const auto dim = static_cast<std::size_t>(op.dim);
  const bool floating = is_floating(dtype);
  const double infinity = std::numeric_limits<double>::infinity();
  const double low = floating ? -infinity : dtype == DType::i32 ? -2147483648.0 : -9223372036854775808.0;
  for_each(shape, [&](const Dims& at, std::int64_t offset) {
    Dims from;
    for (std::size_t d = 0; d < x.shape.size(); ++d) {
      const std::size_t e = op.keep_dim || d < dim ? d : d - 1;
      from.push_back(d == dim ? 0 : at[e]);
    }
    A total = 0;
    if (op.reduce == ReduceOp::max) total = static_cast<A>(low);
    if (op.reduce == ReduceOp::min) total = static_cast<A>(floating ? infinity : -low - 1);
    for (std::int64_t i = 0; i < x.shape[dim]; ++i) {
      from[dim] = i;
      const A value = static_cast<A>(x.data[offset_of(x.shape, from)]);
      if (op.reduce == ReduceOp::max) {
        total = std::isnan(total) || total > value ? total : value;
      } else if (op.reduce == ReduceOp::min) {
        total = std::isnan(total) || total < value ? total : value;
      } else {
        total += value;
      }
    }
    if (op.reduce == ReduceOp::mean) total /= static_cast<A>(x.shape[dim]);
    result.data[offset] = total;
  });
  return result;
}

Value transpose(const Op& op, const Shape& shape, const Value& x) {
  Value result = zeros(shape);
  for_each(shape, [&](const Dims& at, std::int64_t offset) {
    Dims from = at;
    for (std::size_t i = 0; i < at.size(); ++i) from[op.shape[i]] = at[i];
    result.data[offset] = x.data[offset_of(x.shape, from)];
  });
  return result;
}

// The table's row for an index, as this member holds the table; -1 where another member holds it.
std::int64_t held_row(const Op& op, const TensorType& table, int member, double index) {
  const std::size_t dim = table.shape.size() - 2;
  TW_REQUIRE(index >= 0 && index < static_cast<double>(table.shape[dim]), ErrorKind::invalid,
             .where = std::string(name_of(op.kind)) + " at " + op.where, .what = "an index outside the table",
             .expected = "0 <= index < " + std::to_string(table.shape[dim]),
             .got = std::to_string(static_cast<std::int64_t>(index)));
  const bool cut = table.placement.is_shard(static_cast<int>(dim));
  const std::int64_t row = static_cast<std::int64_t>(index) - (cut ? table.shard_start(member) : 0);
  return row >= 0 && row < table.local_shape(member)[dim] ? row : -1;
}

Value gather_rows(const Op& op, const Shape& shape, const TensorType& table, int member,
                  const std::vector<Value>& operands) {
  Value result = zeros(shape);
  const std::int64_t width = shape.back();
  for (std::size_t i = 0; i < operands[1].data.size(); ++i) {
    const std::int64_t row = held_row(op, table, member, operands[1].data[i]);
    for (std::int64_t c = 0; row >= 0 && c < width; ++c) result.data[i * width + c] = operands[0].data[row * width + c];
  }
  return result;
}

template <typename A>
Value embedding_bag(const Op& op, const Shape& shape, const TensorType& table, int member,
                    const std::vector<Value>& operands) {
  Value result = zeros(shape);
  const Value& rows = operands[0];
  const Value& indices = operands[1];
  const std::int64_t pooling = indices.shape.back();
  const std::int64_t held = rows.shape[rows.shape.size() - 2];
  const std::int64_t width = shape.back();
  const bool tables = shape.size() == 3;
  for_each(shape, [&](const Dims& at, std::int64_t offset) {
    const std::int64_t bag = tables ? at[0] * shape[1] + at[1] : at[0];
    A sum = 0;
    for (std::int64_t l = 0; l < pooling; ++l) {
      const std::int64_t row = held_row(op, table, member, indices.data[bag * pooling + l]);
      if (row < 0) continue;
      const std::int64_t first = tables ? at[0] * held : 0;
      sum += static_cast<A>(rows.data[(first + row) * width + at[at.size() - 1]]);
    }
    if (op.reduce == ReduceOp::mean && pooling > 0) sum /= static_cast<A>(pooling);
    result.data[offset] = sum;
  });
  return result;
}

template <typename A>
Value compute_in(const Program& program, const Op& op, int member, const std::vector<Value>& operands) {
  const Shape shape = op.type.local_shape(member);
  const TensorType& first = program.ops()[op.operands[0]].type;
  switch (op.kind) {
    case OpKind::pointwise:
      return pointwise<A>(op, shape, operands);
    case OpKind::cast:
      return cast(op, first.dtype, operands[0]);
    case OpKind::matmul:
      return matmul<A>(shape, operands[0], operands[1], op.precision);
    case OpKind::scaled_matmul:
      return scaled_matmul<A>(shape, operands);
    case OpKind::softmax:
    case OpKind::layer_norm:
    case OpKind::rms_norm:
      return rows<A>(op, operands);
    case OpKind::reduce_dim:
      return reduce_dim<A>(op, shape, operands[0], first.dtype);
    case OpKind::reshape:
      return {shape, operands[0].data};
    case OpKind::transpose:
      return transpose(op, shape, operands[0]);
    case OpKind::slice:
      return narrow(operands[0], static_cast<std::size_t>(op.dim), op.start, op.extent);
    case OpKind::gather_rows:
      return gather_rows(op, shape, first, member, operands);
    case OpKind::embedding_bag:
      return embedding_bag<A>(op, shape, first, member, operands);
    case OpKind::shard:
      return narrow(operands[0], static_cast<std::size_t>(op.type.placement.dim), op.type.shard_start(member),
                    op.type.placement.sizes[member]);
    case OpKind::update:
      return operands[1];
    default:
      break;
  }
  TW_ASSERT(!"compute is for computations");
  return {};
}

}  // namespace

Value compute(const Program& program, const Op& op, int member, const std::vector<Value>& operands, bool exact) {
  // fp64 holds integers exactly, so they take that path whatever the arithmetic.
  const bool wide = exact || !is_floating(op.type.dtype);
  return wide ? compute_in<double>(program, op, member, operands) : compute_in<float>(program, op, member, operands);
}

}  // namespace tileway::interpreter
