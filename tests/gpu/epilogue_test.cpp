// Products whose tasks go on with what is done to their elements, on GPUs: the bits of steps that stand alone, by
// tensor cores with and without TMA, by CUDA cores, and with operands anywhere.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "gpu/kernels_ahead.hpp"
#include "runtime/cuda/driver.hpp"
#include "support/epilogues.hpp"
#include "support/run.hpp"

namespace tileway {
namespace {

struct Case {
  Program program;
  Topology topology;
  std::string name;

  Plan plan(const Schedule& schedule) const { return lower(program, schedule, topology).plan; }
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const DType dtype : {DType::bf16, DType::f32, DType::f16}) {
    for (int ranks : {1, 2, 3}) {
      std::vector<std::array<std::int64_t, 3>> sizes = testing::epilogue_sizes();
      if (dtype == DType::bf16) sizes.push_back({512, 1536, 256});  // whole tiles, all of them loaded by TMA
      for (const auto& [m, n, k] : sizes)
        all.push_back({testing::program_with_epilogues(ranks, dtype, m, n, k), testing::small_topology(ranks, 20, 0),
                       fmt::format("{} {}x{}x{} on {} ranks", name_of(dtype), m, n, k, ranks)});
    }
  }
  return all;
}

const testing::KernelsAhead kAhead([](const auto& add) {
  for (const Case& one : cases()) {
    add(one.plan(Schedule::fused(one.program)));
    add(one.plan(Schedule::overlapped(one.program)));
  }
});

TEST(CudaEpilogue, GivesTheBitsOfStepsThatStandAlone) {
  ASSERT_FALSE(cuda::gpus().empty()) << cuda::why_not();
  const auto on_gpus = [](Group& group, const ProvenPlan& plan) { return std::make_unique<CudaExecutor>(group, plan); };
  for (const Case& one : cases()) {
    const Bindings inputs = random_inputs(one.program, 3, Fill::normal);
    const auto run = [&](const Schedule& schedule) {
      return testing::run_threads(one.program, one.plan(schedule), {inputs}, on_gpus);
    };
    const testing::Outcome got = run(Schedule::fused(one.program));
    testing::expect_same(run(Schedule::overlapped(one.program)).outputs, got.outputs, one.name);
    const Accuracy accuracy = measure_accuracy(one.program, inputs, got.outputs);
    EXPECT_LE(accuracy.error, accuracy.allowed) << one.name;
    ASSERT_FALSE(HasFailure()) << one.name;
  }
}

}  // namespace
}  // namespace tileway
