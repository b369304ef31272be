#include <algorithm>
#include <cmath>
#include <random>

#include "tileway/interpreter.hpp"

namespace tileway {
namespace {

// The relative error of one rounding.
double unit_roundoff(DType dtype) {
  if (dtype == DType::e4m3) return 0x1p-4;
  return dtype == DType::bf16 ? 0x1p-8 : dtype == DType::f16 ? 0x1p-11 : 0x1p-24;
}

constexpr double kUnitRoundoffOfTf32 = 0x1p-11;

// Elements from which rounding is judged, at least.
constexpr std::int64_t kEnough = 32;

// The same inputs, but each floating number up to an eighth smaller: as large as they were, and rounded otherwise.
Bindings nudged(const Program& program, const Bindings& inputs, std::uint32_t seed) {
  Bindings others = inputs;
  for (const Op& op : program.ops()) {
    if (op.kind != OpKind::input || !is_floating(op.type.dtype)) continue;
    for (Array& part : others.at(op.name)) {
      std::mt19937 random(seed);  // alike on ranks that hold the same
      std::uniform_real_distribution<double> factor(0.875, 1);
      for (std::int64_t i = 0; i < part.size(); ++i) part.set(i, part.at(i) * factor(random));
    }
  }
  return others;
}

Bindings run(const Program& program, Bindings inputs, Arithmetic arithmetic) {
  return interpret(program, inputs, arithmetic);
}

// Over all names and ranks.
double largest_difference(const Bindings& all, const Bindings& others) {
  double largest = 0;
  for (const auto& [name, parts] : all) {
    for (std::size_t rank = 0; rank < parts.size(); ++rank)
      largest = std::max(largest, max_difference(parts[rank], others.at(name)[rank]));
  }
  return largest;
}

}  // namespace

Accuracy measure_accuracy(const Program& program, const Bindings& inputs, const Bindings& outputs) {
  const Bindings exact = run(program, inputs, Arithmetic::exact);
  double least = 0;
  for (const Op& op : program.ops()) {
    if (op.kind == OpKind::scaled_matmul) least = std::max(least, unit_roundoff(DType::bf16));
    if (op.precision == Precision::tf32) least = std::max(least, kUnitRoundoffOfTf32);
  }
  Accuracy accuracy;
  std::int64_t elements = 0;
  for (const Program::Output& output : program.outputs()) {
    const TensorType& type = program.ops()[output.op].type;
    elements += volume(type.shape);
    double largest = 0;
    for (const Array& part : exact.at(output.name)) {
      for (double value : part.values()) {
        if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
      }
    }
    accuracy.allowed = std::max(accuracy.allowed, largest * std::max(least, unit_roundoff(type.dtype)));
  }
  accuracy.error = largest_difference(exact, outputs);
  accuracy.reference = largest_difference(exact, run(program, inputs, Arithmetic::declared));
  // A few elements may happen to be rounded well.
  for (std::uint32_t more = 1; elements > 0 && elements * more < kEnough; ++more) {
    const Bindings others = nudged(program, inputs, more);
    accuracy.reference = std::max(accuracy.reference, largest_difference(run(program, others, Arithmetic::exact),
                                                                         run(program, others, Arithmetic::declared)));
  }
  accuracy.allowed += 2 * accuracy.reference;
  return accuracy;
}

}  // namespace tileway
