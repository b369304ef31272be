// Products whose tasks go on with what is done to their elements: the same bits as if every step stood alone.
#include <fmt/format.h>

#include <algorithm>

#include "exec/cuda/table.hpp"
#include "exec/cuda/variant.hpp"
#include "runtime/cuda/compile.hpp"
#include "support/epilogues.hpp"
#include "support/run.hpp"
#include "tileway/error.hpp"
#include "tileway/verify.hpp"

namespace tileway {
namespace {

TEST(Epilogue, GivesTheBitsOfStepsThatStandAlone) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (int ranks : {1, 2, 3}) {
      for (const auto& [m, n, k] : testing::epilogue_sizes()) {
        const Program program = testing::program_with_epilogues(ranks, dtype, m, n, k);
        const Topology topology = testing::small_topology(ranks);
        const Plan fused = lower(program, Schedule::fused(program), topology).plan;
        const Plan apart = lower(program, Schedule::overlapped(program), topology).plan;
        EXPECT_LT(fused.tasks.size(), apart.tasks.size());
        ProvenPlan::prove(fused);
        for (const Fill fill : {Fill::integers, Fill::normal}) {
          Bindings inputs = random_inputs(program, 3, fill);
          const testing::Outcome got = testing::run_threads(program, fused, {inputs});
          const testing::Outcome expected = testing::run_threads(program, apart, {inputs});
          testing::expect_same(expected.outputs, got.outputs, fmt::format("{} {}x{}x{}", name_of(dtype), m, n, k));
          const Accuracy accuracy = measure_accuracy(program, inputs, got.outputs);
          EXPECT_LE(accuracy.error, accuracy.allowed);
        }
      }
    }
  }
}

TEST(Epilogue, IsInThePlanAndItsFilesAndTheTableOfAGpu) {
  const Program program = testing::program_with_epilogues(2, DType::bf16, 64, 96, 32);
  const ProvenPlan proven =
      ProvenPlan::prove(lower(program, Schedule::fused(program), testing::small_topology(2, 5, 0)).plan);
  const Plan& plan = proven.plan();
  const auto steps = [](const Plan& its) {
    std::size_t most = 0;
    for (const Body& body : its.bodies) most = std::max(most, body.epilogue.size());
    return most;
  };
  EXPECT_GE(steps(plan), 4U);
  const Plan read = plan_from_json(to_json(plan));
  EXPECT_EQ(fingerprint(read), fingerprint(plan));
  EXPECT_EQ(read.bodies, plan.bodies);
  Plan changed = plan;
  for (Body& body : changed.bodies) {
    if (!body.epilogue.empty()) body.epilogue.back().dtype = DType::f16;
  }
  EXPECT_NE(fingerprint(changed), fingerprint(plan));
  EXPECT_THROW(check_structure(changed), Error);
  const PlanLayout layout(plan);
  cuda::Addresses addresses{plan, layout, {}, cuda::Address{1} << 40};
  for (int rank = 0; rank < 2; ++rank) addresses.symmetric.push_back((cuda::Address{2} + rank) << 40);
  const cuda::Table table = cuda::make_table(addresses, 0, cuda::KernelText(plan, "sm_100a"));
  EXPECT_EQ(fingerprint(cuda::read_table(table, addresses, 0)), fingerprint(plan));
}

TEST(Epilogue, OnGpusCompilesForEveryArchitectureAndIsLoadedAheadOnHopper) {
  ASSERT_TRUE(cuda::compiler_found()) << cuda::compiler_text() << "; scripts/install test brings NVRTC";
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Program program = testing::program_with_epilogues(2, dtype, 256, 512, 64);
    const Plan plan = lower(program, Schedule::fused(program), Topology::parse("ranks=2,lanes=132,copy=0")).plan;
    for (const char* architecture : {"sm_80", "sm_90a", "sm_100a"}) {
      const cuda::KernelText text(plan, architecture);
      EXPECT_EQ(text.loads_ahead(), dtype == DType::bf16 && std::string(architecture) == "sm_90a");
      const cuda::Image image = cuda::compile(text.source(), "tileway_run", architecture);
      EXPECT_EQ(image.report.find("C7510"), std::string::npos) << image.report;
    }
  }
}

TEST(Epilogue, IsRefusedWithTheReason) {
  Program p("p", 2);
  const Tensor x = p.input("x", DType::bf16, {8, 4}, Replicate());
  const Tensor w = p.input("w", DType::bf16, {4, 6}, Replicate());
  const Tensor product = matmul(x, w);
  const Tensor wide = product + p.input("b", DType::bf16, {2, 8, 6}, Replicate());
  const Tensor other = matmul(x, w);
  const Tensor both = other + matmul(x, w);
  const Tensor lone = pointwise(Function::relu, {x});
  const Tensor after = pointwise(Function::neg, {lone});
  const Tensor whole = cast(matmul(x, w), DType::i32);
  const Tensor exact = matmul(cast(x, DType::f32), cast(w, DType::f32));
  const Tensor narrow = cast(exact, DType::bf16);
  const Tensor twice = matmul(x, w);
  const Tensor one = pointwise(Function::neg, {twice});
  const Tensor two = pointwise(Function::relu, {twice});
  p.output("y", one);
  p.output("z", two);
  const auto refused = [&](Schedule schedule, Tensor from, Tensor to) {
    try {
      schedule.fuse_epilogue(from, to);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("taken");
  };
  const Schedule fresh = Schedule::overlapped(p);
  const auto expect = [&](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  const auto operand = [&](Tensor value, int k) { return Tensor(&p, p.ops()[value.index()].operands[k]); };
  expect(refused(fresh, product, wide), "another shape or placement");
  expect(refused(fresh, x, lone), "there is no matmul to go on with");
  expect(refused(fresh, lone, after), "there is no matmul to go on with");
  expect(refused(fresh, x, product), "no function of single elements");
  expect(refused(fresh, other, wide), "does not read the product");
  expect(refused(fresh, operand(whole, 0), whole), "computed in f32, bf16 or f16");
  expect(refused(fresh, twice, one), "another operation reads");
  expect(refused(fresh, exact, narrow), "narrower than the product's");
  Schedule chosen = fresh;
  chosen.fuse_epilogue(other, both);
  expect(refused(chosen, operand(both, 1), both), "goes on with another product");
  try {
    chosen.engine(other, Engine::library);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    expect(error.what(), "its tasks go on with what is done to its elements");
  }
}

}  // namespace
}  // namespace tileway
