// Element-wise functions.
#include <cmath>
#include <numbers>

#include "exec/host/kernels/all.hpp"
#include "exec/host/kernels/rows.hpp"

namespace tileway::host {
namespace {

// Calls `body` with a callable for the function, on operands of type W. Only those defined on W are instantiated.
template <typename W, typename Body>
void with_function(Function function, Body&& body) {
  switch (function) {
    case Function::neg:
      return body([](W a) { return -a; });
    case Function::abs:
      return body([](W a) { return a < 0 ? -a : a == 0 ? W{0} : a; });
    case Function::relu:
      return body([](W a) { return a < 0 ? W{0} : a; });
    case Function::add:
      return body([](W a, W b) { return a + b; });
    case Function::sub:
      return body([](W a, W b) { return a - b; });
    case Function::mul:
      return body([](W a, W b) { return a * b; });
    case Function::maximum:  // a NaN on either side stays
      return body([](W a, W b) { return a != a || a > b ? a : b; });
    case Function::minimum:
      return body([](W a, W b) { return a != a || a < b ? a : b; });
    case Function::greater:
      return body([](W a, W b) { return a > b ? W{1} : W{0}; });
    case Function::equal:
      return body([](W a, W b) { return a == b ? W{1} : W{0}; });
    case Function::where:
      return body([](W c, W a, W b) { return c != 0 ? a : b; });
    default:
      break;
  }
  if constexpr (std::is_floating_point_v<W>) {
    const auto sigmoid = [](W a) { return 1 / (1 + std::exp(-a)); };
    switch (function) {
      case Function::exp:
        return body([](W a) { return std::exp(a); });
      case Function::log:
        return body([](W a) { return std::log(a); });
      case Function::sqrt:
        return body([](W a) { return std::sqrt(a); });
      case Function::rsqrt:
        return body([](W a) { return 1 / std::sqrt(a); });
      case Function::tanh:
        return body([](W a) { return std::tanh(a); });
      case Function::erf:
        return body([](W a) { return std::erf(a); });
      case Function::sigmoid:
        return body(sigmoid);
      case Function::silu:
        return body([sigmoid](W a) { return a * sigmoid(a); });
      case Function::gelu:
        return body([](W a) { return a * (1 + std::erf(a / std::numbers::sqrt2_v<W>)) / 2; });
      case Function::div:
        return body([](W a, W b) { return a / b; });
      default:
        break;
    }
  }
  TW_ASSERT(!"a function that check_structure refuses for this dtype");
}

// One row: operand v starts at rows[v] and advances by steps[v], 0 where it broadcasts.
template <typename T, typename Apply>
void apply_row(const Apply& apply, const std::array<const T*, 3>& rows, const std::array<std::int64_t, 3>& steps,
               T* out, std::int64_t length) {
  using W = Wide<T>;
  const auto load = [&](std::size_t v, std::int64_t i) { return static_cast<W>(rows[v][i * steps[v]]); };
  for (std::int64_t i = 0; i < length; ++i) {
    if constexpr (std::is_invocable_v<Apply, W, W, W>) {
      out[i] = static_cast<T>(apply(load(0, i), load(1, i), load(2, i)));
    } else if constexpr (std::is_invocable_v<Apply, W, W>) {
      out[i] = static_cast<T>(apply(load(0, i), load(1, i)));
    } else {
      out[i] = static_cast<T>(apply(load(0, i)));
    }
  }
}

}  // namespace

void pointwise(const Arguments& arguments) {
  const View& to = arguments.writes[0];
  if (volume(to.extent) == 0) return;
  const std::size_t operands = arguments.reads.size();
  const auto read = [&](std::size_t v) -> const View& { return arguments.reads[v < operands ? v : 0]; };
  std::array<std::int64_t, 3> steps{};
  for (std::size_t v = 0; v < operands; ++v) steps[v] = row_length(read(v)) == 1 ? 0 : 1;
  with_elements(to, [&]<typename T>(T) {
    with_function<Wide<T>>(arguments.body.function, [&](const auto& apply) {
      for (RowWalk<4> walk(to.extent, {&read(0), &read(1), &read(2), &to}); !walk.done(); walk.next()) {
        std::array<const T*, 3> rows{};
        for (std::size_t v = 0; v < operands; ++v) rows[v] = at<T>(read(v), walk.offset(v));
        apply_row<T>(apply, rows, steps, at<T>(to, walk.offset(3)), row_length(to));
      }
    });
  });
}

}  // namespace tileway::host
