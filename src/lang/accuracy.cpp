#include <algorithm>
#include <cmath>

#include "tileway/interpreter.hpp"

namespace tileway {
namespace {

// The relative error of one rounding.
double unit_roundoff(DType dtype) {
  if (dtype == DType::e4m3) return 0x1p-4;
  return dtype == DType::bf16 ? 0x1p-8 : dtype == DType::f16 ? 0x1p-11 : 0x1p-24;
}

constexpr double kUnitRoundoffOfTf32 = 0x1p-11;

}  // namespace

Accuracy measure_accuracy(const Program& program, const Bindings& inputs, const Bindings& outputs) {
  Bindings declared_inputs = inputs;
  Bindings exact_inputs = inputs;
  const Bindings declared = interpret(program, declared_inputs);
  const Bindings exact = interpret(program, exact_inputs, Arithmetic::exact);
  double least = 0;
  for (const Op& op : program.ops()) {
    if (op.kind == OpKind::scaled_matmul) least = std::max(least, unit_roundoff(DType::bf16));
    if (op.precision == Precision::tf32) least = std::max(least, kUnitRoundoffOfTf32);
  }
  Accuracy accuracy;
  for (const auto& [name, parts] : exact) {
    for (std::size_t rank = 0; rank < parts.size(); ++rank) {
      double largest = 0;
      for (double value : parts[rank].values()) {
        if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
      }
      accuracy.error = std::max(accuracy.error, max_difference(parts[rank], outputs.at(name)[rank]));
      accuracy.reference = std::max(accuracy.reference, max_difference(parts[rank], declared.at(name)[rank]));
      accuracy.allowed =
          std::max(accuracy.allowed, largest * std::max(least, unit_roundoff(declared.at(name)[rank].dtype())));
    }
  }
  accuracy.allowed += 2 * accuracy.reference;
  return accuracy;
}

}  // namespace tileway
