// Products whose tasks go on with what is done to their elements, on GPUs: the bits of steps that stand alone, by
// tensor cores with and without TMA, by CUDA cores, and with operands anywhere.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <tuple>
#include <vector>

#include "runtime/cuda/driver.hpp"
#include "support/epilogues.hpp"
#include "support/run.hpp"

namespace tileway {
namespace {

TEST(CudaEpilogue, GivesTheBitsOfStepsThatStandAlone) {
  ASSERT_FALSE(cuda::gpus().empty()) << cuda::why_not();
  const auto on_gpus = [](Group& group, const ProvenPlan& plan) { return std::make_unique<CudaExecutor>(group, plan); };
  for (const DType dtype : {DType::bf16, DType::f32, DType::f16}) {
    for (int ranks : {1, 2, 3}) {
      std::vector<std::array<std::int64_t, 3>> sizes = testing::epilogue_sizes();
      if (dtype == DType::bf16) sizes.push_back({512, 1536, 256});  // whole tiles, all of them loaded by TMA
      for (const auto& [m, n, k] : sizes) {
        const Program program = testing::program_with_epilogues(ranks, dtype, m, n, k);
        const Topology topology = testing::small_topology(ranks, 20, 0);
        const Bindings inputs = random_inputs(program, 3, Fill::normal);
        const auto run = [&](const Schedule& schedule) {
          return testing::run_threads(program, lower(program, schedule, topology).plan, {inputs}, on_gpus);
        };
        const testing::Outcome got = run(Schedule::fused(program));
        const std::string context = fmt::format("{} {}x{}x{} on {} ranks", name_of(dtype), m, n, k, ranks);
        testing::expect_same(run(Schedule::overlapped(program)).outputs, got.outputs, context);
        const Accuracy accuracy = measure_accuracy(program, inputs, got.outputs);
        EXPECT_LE(accuracy.error, accuracy.allowed) << context;
        ASSERT_FALSE(HasFailure()) << context;
      }
    }
  }
}

}  // namespace
}  // namespace tileway
