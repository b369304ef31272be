// Communications, all members at once.
#include <algorithm>
#include <cmath>
#include <string>

#include "lang/interpreter.hpp"
#include "tileway/error.hpp"

namespace tileway::interpreter {
namespace {

// The whole of a sharded tensor, from its parts.
Value assembled(const TensorType& type, const std::vector<Value>& parts) {
  if (!type.placement.is_shard()) return parts[0];
  Value whole = zeros(type.shape);
  const auto dim = static_cast<std::size_t>(type.placement.dim);
  for (std::size_t m = 0; m < parts.size(); ++m) {
    for_each(parts[m].shape, [&](Dims at, std::int64_t offset) {
      at[dim] += type.shard_start(static_cast<int>(m));
      whole.data[offset_of(whole.shape, at)] = parts[m].data[offset];
    });
  }
  return whole;
}

// Every member's part of a whole.
std::vector<Value> distributed(const TensorType& type, const Value& whole, std::size_t members) {
  std::vector<Value> parts;
  for (std::size_t m = 0; m < members; ++m) {
    const int member = static_cast<int>(m);
    parts.push_back(type.placement.is_shard() ? narrow(whole, static_cast<std::size_t>(type.placement.dim),
                                                       type.shard_start(member), type.placement.sizes[m])
                                              : whole);
  }
  return parts;
}

// Members' partials combined in rank order.
template <typename A>
Value combined(ReduceOp op, const std::vector<Value>& partials) {
  Value result = partials[0];
  for (std::size_t i = 0; i < result.data.size(); ++i) {
    A total = static_cast<A>(partials[0].data[i]);
    for (std::size_t m = 1; m < partials.size(); ++m) {
      const A value = static_cast<A>(partials[m].data[i]);
      if (op == ReduceOp::max) {
        total = std::isnan(total) || total > value ? total : value;
      } else if (op == ReduceOp::min) {
        total = std::isnan(total) || total < value ? total : value;
      } else {
        total += value;
      }
    }
    result.data[i] = total;
  }
  return result;
}

std::vector<Value> all_to_all_v(const Op& op, const std::vector<Value>& x, const std::vector<Value>& splits) {
  const std::size_t n = x.size();
  const auto rows = [&](std::size_t from, std::size_t to) { return splits[from].data[to]; };
  const auto require = [&](bool fits, std::size_t member, const char* what, const std::string& bound, double got) {
    TW_REQUIRE(fits, ErrorKind::invalid, .where = "all_to_all_v at " + op.where,
               .what = "member " + std::to_string(member) + what, .expected = bound,
               .got = std::to_string(static_cast<std::int64_t>(got)));
  };
  std::vector<Value> results;
  for (std::size_t m = 0; m < n; ++m) {
    double sent = 0;
    double received = 0;
    for (std::size_t other = 0; other < n; ++other) {
      require(rows(m, other) >= 0, m, " has a negative split", "at least 0", rows(m, other));
      sent += rows(m, other);
      received += rows(other, m);
    }
    const std::int64_t held = x[m].shape[0];
    require(sent <= static_cast<double>(held), m, " sends more rows than it holds", "at most " + std::to_string(held),
            sent);
    require(received <= static_cast<double>(op.extent), m, " receives more rows than it has room for",
            "at most " + std::to_string(op.extent), received);
    results.push_back(zeros(op.type.local_shape(static_cast<int>(m))));
  }
  for (std::size_t to = 0; to < n; ++to) {
    std::int64_t written = 0;
    for (std::size_t from = 0; from < n; ++from) {
      std::int64_t first = 0;
      for (std::size_t q = 0; q < to; ++q) first += static_cast<std::int64_t>(rows(from, q));
      const auto count = static_cast<std::int64_t>(rows(from, to));
      const std::int64_t width = count == 0 ? 0 : volume(x[from].shape) / x[from].shape[0];
      std::copy_n(x[from].data.begin() + first * width, count * width, results[to].data.begin() + written * width);
      written += count;
    }
  }
  return results;
}

}  // namespace

std::vector<Value> communicate(const Program& program, const Op& op, const std::vector<std::vector<Value>>& operands,
                               bool exact) {
  const TensorType& from = program.ops()[op.operands[0]].type;
  const std::vector<Value>& x = operands[0];
  if (op.kind == OpKind::send) return x;
  if (op.kind == OpKind::all_to_all_v) return all_to_all_v(op, x, operands[1]);
  if (!from.placement.is_partial()) return distributed(op.type, assembled(from, x), x.size());
  const bool wide = exact || !is_floating(from.dtype);
  Value total = wide ? combined<double>(from.placement.op, x) : combined<float>(from.placement.op, x);
  return distributed(op.type, total, x.size());
}

}  // namespace tileway::interpreter
