// e4m3 on GPUs: casts round as the interpreter's do, and elements move.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "runtime/cuda/driver.hpp"
#include "support/run.hpp"
#include "support/values.hpp"

namespace tileway {
namespace {

using testing::kInfinity;
using testing::kNan;

void expect_interpreters(const Program& program, const Bindings& inputs) {
  Bindings copy = inputs;
  const Bindings expected = interpret(program, copy);
  const Plan plan = lower(program, Schedule::overlapped(program), testing::small_topology(program.world(), 5, 0)).plan;
  const testing::MakeExecutor on_gpus = [](Group& group, const ProvenPlan& proven) {
    return std::make_unique<CudaExecutor>(group, proven, CudaExecutor::Options{});
  };
  testing::expect_same(expected, testing::run_threads(program, plan, {inputs}, on_gpus).outputs, program.name());
}

TEST(CudaE4m3, CastsRoundTiesToEvenAndSaturate) {
  if (cuda::gpus().empty()) GTEST_SKIP() << cuda::why_not();
  std::vector<double> values{0, -0.0, 448, 463.9, 464, 465, 1e9, kInfinity, -kInfinity, kNan, 0x1p-10, 0x1.8p-10};
  Array codes(DType::e4m3, {256});
  for (int code = 0; code < 256; ++code) codes.data()[code] = static_cast<std::byte>(code);
  for (int code = 0; code < 126; ++code) {
    const double middle = (codes.at(code) + codes.at(code + 1)) / 2;
    for (const double value : {middle, middle * (1 + 0x1p-20), middle * (1 - 0x1p-20)}) {
      values.push_back(value);
      values.push_back(-value);
    }
  }
  const auto n = static_cast<std::int64_t>(values.size());
  for (const DType wide : {DType::f32, DType::bf16, DType::f16}) {
    Program p("casts", 1);
    const Tensor narrow = cast(p.input("x", wide, {n}, Replicate()), DType::e4m3);
    p.output("narrow", narrow);
    p.output("back", cast(narrow, wide));
    p.output("all", cast(p.input("codes", DType::e4m3, {256}, Replicate()), wide));
    expect_interpreters(p, {{"x", {Array::from(wide, {n}, values)}}, {"codes", {codes}}});
  }
}

TEST(CudaE4m3, ElementsMove) {
  if (cuda::gpus().empty()) GTEST_SKIP() << cuda::why_not();
  Program p("movement", 3);
  const Tensor x = p.input("x", DType::e4m3, {37, 19}, Shard(0));
  p.output("gathered", transpose(all_gather(x), {1, 0}));
  p.output("exchanged", all_to_all(x, 1));
  p.output("cut", slice(reshape(all_gather(x), {37, 19, 1}), 1, 3, 11));
  p.output("rows", gather_rows(all_gather(x), p.input("i", DType::i64, {5, 4}, Replicate())));
  expect_interpreters(p, random_inputs(p, 1, Fill::normal));
}

}  // namespace
}  // namespace tileway
