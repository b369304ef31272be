// Ready-made operators: small programs with a name and a size.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tileway/program.hpp"

namespace tileway {

// An operator is one file in src/ops that fills in one of these. Nothing else names it.
struct Operator {
  std::string_view name;
  std::string_view summary;          // one line for a person
  std::vector<std::string> extents;  // what the numbers of a size mean: {"M", "N", "K"}
  std::vector<std::int64_t> size;    // the default, small enough for CPU ranks
  // Adds the inputs, operations and outputs to an empty program of the world's ranks.
  void (*build)(Program& program, DType dtype, std::span<const std::int64_t> size);
};

// All of them, by name.
const std::vector<Operator>& operators();
// Throws Error (invalid), naming those that exist.
const Operator& find_operator(std::string_view name);
// The program of an operator; an empty size is the default. Its products of f32 have the given precision. Throws Error
// (invalid) for a size that does not fit, and for a precision where there is no such product.
Program make_program(const Operator& op, int ranks, DType dtype, std::span<const std::int64_t> size,
                     Precision precision = Precision::exact);

// Registers an operator before main begins; see any file in src/ops.
struct RegisterOperator {
  explicit RegisterOperator(Operator op);
};

}  // namespace tileway
