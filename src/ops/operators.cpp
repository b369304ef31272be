#include "tileway/ops.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "tileway/error.hpp"

namespace tileway {
namespace {

std::vector<Operator>& registry() {
  static std::vector<Operator> operators;
  return operators;
}

}  // namespace

RegisterOperator::RegisterOperator(Operator op) {
  std::vector<Operator>& all = registry();
  const auto by_name = [](const Operator& a, const Operator& b) { return a.name < b.name; };
  all.insert(std::lower_bound(all.begin(), all.end(), op, by_name), std::move(op));
}

const std::vector<Operator>& operators() { return registry(); }

const Operator& find_operator(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Operator& op : operators()) {
    if (op.name == name) return op;
    names.push_back(op.name);
  }
  throw Error(ErrorKind::invalid, {.where = "operator '" + std::string(name) + "'",
                                   .what = "there is none of this name",
                                   .expected = fmt::format("{}", fmt::join(names, ", "))});
}

Program make_program(const Operator& op, int ranks, DType dtype, std::span<const std::int64_t> size,
                     Precision precision) {
  if (size.empty()) size = op.size;
  const bool fits =
      size.size() == op.extents.size() && std::all_of(size.begin(), size.end(), [](auto n) { return n >= 0; });
  TW_REQUIRE(fits, ErrorKind::invalid, .where = std::string(op.name), .what = "the size does not fit the operator",
             .expected = fmt::format("{}", fmt::join(op.extents, "x")), .got = fmt::format("{}", fmt::join(size, "x")));
  Program program{std::string(op.name), ranks};
  program.set_matmul_precision(precision);
  op.build(program, dtype, size);
  const bool heeded = std::any_of(program.ops().begin(), program.ops().end(),
                                  [&](const Op& one) { return one.precision == precision; });
  TW_REQUIRE(heeded || precision == Precision::exact, ErrorKind::invalid, .where = std::string(op.name),
             .what = "it has no product of f32 matrices", .got = "the precision " + std::string(name_of(precision)));
  return program;
}

}  // namespace tileway
