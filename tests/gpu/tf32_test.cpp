// tf32 products on GPUs: the tensor cores round as the interpreter does.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "support/run.hpp"
#include "tileway/ops.hpp"

namespace tileway {
namespace {

testing::MakeExecutor on_gpus() {
  return [](Group& group, const ProvenPlan& plan) {
    return std::make_unique<CudaExecutor>(group, plan, CudaExecutor::Options{});
  };
}

TEST(CudaTf32, OperatorsAreExactOnIntegersAndWithinWhatTf32Allows) {
  for (const char* name : {"gemm_all_reduce", "gemm_reduce_scatter", "all_gather_gemm"}) {
    for (const std::vector<std::int64_t>& size : {std::vector<std::int64_t>{37, 19, 23}, {136, 264, 144}, {1, 1, 1}}) {
      const Program program = make_program(find_operator(name), 2, DType::f32, size, Precision::tf32);
      const Schedule schedule = Schedule::overlapped(program);
      const Topology topology = testing::small_topology(2, 5, 0);
      testing::expect_exact(program, schedule, topology, 1, on_gpus());
      const Bindings inputs = random_inputs(program, 2, Fill::normal);
      const Plan plan = lower(program, schedule, topology).plan;
      const Bindings outputs = testing::run_threads(program, plan, {inputs}, on_gpus()).outputs;
      const Accuracy accuracy = measure_accuracy(program, inputs, outputs);
      EXPECT_LE(accuracy.error, accuracy.allowed) << name;
    }
  }
}

// Every edge times every edge, with k = 1.
void expect_products(const std::vector<double>& edges) {
  const auto n = static_cast<std::int64_t>(edges.size());
  Program p("edges", 1);
  const Tensor a = p.input("a", DType::f32, {n, 1}, Replicate());
  const Tensor b = p.input("b", DType::f32, {1, n}, Replicate());
  p.output("y", matmul(a, b, Precision::tf32));
  const Bindings inputs{{"a", {Array::from(DType::f32, {n, 1}, edges)}},
                        {"b", {Array::from(DType::f32, {1, n}, edges)}}};
  Bindings copy = inputs;
  const std::vector<double> expected = interpret(p, copy).at("y")[0].values();
  const Plan plan = lower(p, Schedule::unfused(p), testing::small_topology(1, 5, 0)).plan;
  const std::vector<double> got = testing::run_threads(p, plan, {inputs}, on_gpus()).outputs.at("y")[0].values();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double left = edges[i / edges.size()];
    const double right = edges[i % edges.size()];
    if (std::isnan(expected[i])) {
      EXPECT_TRUE(std::isnan(got[i])) << left << " * " << right << " gives " << got[i];
    } else {
      EXPECT_EQ(got[i], expected[i]) << left << " * " << right;
    }
  }
}

TEST(CudaTf32, TiesGoAwayFromZero) {
  expect_products({0, 1, -3, 1 + 0x1p-11, -1 - 0x1p-11, 1 + 0x1p-11 - 0x1p-23, 2049, 2051, -4095});
}

TEST(CudaTf32, TheLargestNumbersInfinitiesAndNanAreTheInterpreters) {
  expect_products({0, 1, -1, std::bit_cast<float>(0x7F7FEFFFU), std::numeric_limits<float>::max(),
                   std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()});
}

TEST(CudaTf32, DenormalOperandsAreNotFlushed) {
  expect_products({0, 0x1p100, 0x1p-137, 0x1.8p-136, -0x1p-130, 0x1p-127});
}

}  // namespace
}  // namespace tileway
