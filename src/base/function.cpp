#include "tileway/function.hpp"

#include <array>
#include <string>

#include "tileway/error.hpp"

namespace tileway {
namespace {

struct Entry {
  std::string_view name;
  int operands;
  bool integers;
};

constexpr std::array<Entry, kFunctionCount> kFunctions{{
    {"neg", 1, true},    {"abs", 1, true},     {"exp", 1, false},    {"log", 1, false},     {"sqrt", 1, false},
    {"rsqrt", 1, false}, {"tanh", 1, false},   {"erf", 1, false},    {"sigmoid", 1, false}, {"relu", 1, true},
    {"gelu", 1, false},  {"silu", 1, false},   {"add", 2, true},     {"sub", 2, true},      {"mul", 2, true},
    {"div", 2, false},   {"maximum", 2, true}, {"minimum", 2, true}, {"greater", 2, true},  {"equal", 2, true},
    {"where", 3, true},
}};

const Entry& entry(Function function) { return kFunctions[static_cast<std::size_t>(function)]; }

}  // namespace

std::string_view name_of(Function function) { return entry(function).name; }

Function parse_function(std::string_view text) {
  for (std::size_t i = 0; i < kFunctions.size(); ++i) {
    if (kFunctions[i].name == text) return static_cast<Function>(i);
  }
  throw Error(ErrorKind::invalid, {.where = "function", .what = "unknown name", .got = std::string(text)});
}

int operand_count(Function function) { return entry(function).operands; }

bool defined_on_integers(Function function) { return entry(function).integers; }

}  // namespace tileway
