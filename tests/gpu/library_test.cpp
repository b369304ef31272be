// Products by cuBLASLt beside the kernel that reduces and waits. Ranks are threads, which share a GPU where there is
// one only; whole numbers are compared exactly with the interpreter, whose sums have another order. scripts/gpu.sh runs
// it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "gpu/kernels.hpp"
#include "gpu/kernels_ahead.hpp"
#include "runtime/cuda/cublaslt.hpp"
#include "runtime/cuda/driver.hpp"
#include "runtime/cuda/graph.hpp"
#include "runtime/cuda/memory.hpp"
#include "support/random_program.hpp"
#include "support/run.hpp"
#include "tileway/error.hpp"
#include "tileway/ops.hpp"

namespace tileway {
namespace {

constexpr const char* kOperators[] = {"gemm_all_reduce", "gemm_reduce_scatter", "all_gather_gemm", "gemm_all_to_all",
                                      "gemv_all_reduce"};

constexpr std::uint64_t kSeeds = 60;

struct RandomCase {
  Program program;
  Schedule schedule;
  int products = 0;
};

// Products whose tasks go on with what is done to their elements stay with compute lanes.
RandomCase random_case(std::uint64_t seed) {
  testing::RandomProgram generator(seed);
  Program program = generator.program();
  Schedule schedule = generator.schedule(program);
  RandomCase one{std::move(program), std::move(schedule)};
  for (std::size_t i = 0; i < one.program.ops().size(); ++i) {
    if (one.program.ops()[i].kind != OpKind::matmul) continue;
    try {
      one.schedule.engine(Tensor(&one.program, static_cast<int>(i)), Engine::library);
      ++one.products;
    } catch (const Error&) {
    }
  }
  return one;
}

Topology with_library(int ranks, int lanes, int copy, int library) {
  return Topology::parse(fmt::format("ranks={},lanes={},copy={},library={}", ranks, lanes, copy, library));
}

const testing::KernelsAhead kAhead([](const auto& add) {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const RandomCase one = random_case(seed);
    const int ranks = one.program.world();
    add(lower(one.program, one.schedule, with_library(ranks, 3, ranks > 2 ? 0 : 2, 1)).plan);
  }
});

class CudaLibrary : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda::gpus().empty()) GTEST_SKIP() << cuda::why_not();
    if (!cuda::products_found()) GTEST_SKIP() << cuda::products_text();
    // Open between tests of one executor after the other: opening a GPU takes a tenth of a second.
    for (const cuda::Gpu& gpu : cuda::gpus()) devices_.emplace_back(std::make_unique<cuda::Device>(gpu.ordinal));
  }

  // The copy engine where each rank has a GPU, else stores by compute lanes.
  static Topology topology(int ranks, int lanes = 8, int library = 1) {
    return with_library(ranks, lanes, ranks > static_cast<int>(cuda::gpus().size()) ? 0 : 2, library);
  }

  static testing::MakeExecutor on_gpus(CudaExecutor::Options options = {}) {
    return [options](Group& group, const ProvenPlan& plan) {
      auto executor = std::make_unique<CudaExecutor>(group, plan, options);
      EXPECT_EQ(executor->fingerprint_on_device(), plan.fingerprint());
      return executor;
    };
  }

  static void expect_exact(const Program& program, const Schedule& schedule, const Topology& where,
                           std::uint64_t seed = 1) {
    testing::expect_exact(program, schedule, where, seed, on_gpus());
  }

 private:
  std::vector<std::unique_ptr<cuda::Device>> devices_;
};

struct Type {
  DType dtype;
  Precision precision;
};
constexpr Type kTypes[] = {{DType::bf16, Precision::exact},
                           {DType::f16, Precision::exact},
                           {DType::f32, Precision::exact},
                           {DType::f32, Precision::tf32}};

TEST_F(CudaLibrary, OperatorsGiveTheInterpretersValuesForAnySizeAndType) {
  // Also rows that begin anywhere, fewer rows than ranks, and parts of k with nothing in them.
  const std::vector<std::vector<std::int64_t>> sizes{{1, 1, 1},     {7, 97, 1},   {97, 7, 1001}, {1, 1001, 7},
                                                     {1001, 97, 7}, {97, 97, 97}, {2, 1, 97},    {256, 384, 512}};
  const auto begin = std::chrono::steady_clock::now();
  for (const char* name : kOperators) {
    const Operator& op = find_operator(name);
    for (const auto& size : sizes) {
      for (const Type& type : kTypes) {
        const std::vector<std::int64_t> extents(size.end() - static_cast<std::ptrdiff_t>(op.extents.size()),
                                                size.end());
        const Program program = make_program(op, 2, type.dtype, extents, type.precision);
        expect_exact(program, Schedule::library(program), topology(2));
        ASSERT_FALSE(HasFailure()) << name << " " << fmt::format("{}", fmt::join(extents, "x"));
      }
    }
    fmt::print("{}: {:.1f} s so far\n", name,
               std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
}

TEST_F(CudaLibrary, AnyNumberOfRanksLanesAndUnfusedToo) {
  for (int ranks : {1, 2, 3, 5}) {
    for (int library : {1, 2}) {
      Program program =
          make_program(find_operator("gemm_all_reduce"), ranks, DType::bf16, std::vector<std::int64_t>{130, 257, 66});
      Schedule unfused = Schedule::unfused(program);
      unfused.engine(Tensor(&program, 2), Engine::library);
      Schedule small = Schedule::library(program);
      small.tile(Tensor(&program, 2), {16, 0});
      for (const Schedule& schedule : {small, unfused}) expect_exact(program, schedule, topology(ranks, 8, library));
    }
  }
}

// Tiles that begin at any element: bases are aligned to an element and no more.
TEST_F(CudaLibrary, TilesBeginAnywhere) {
  for (const char* name : kOperators) {
    const Operator& op = find_operator(name);
    for (const Type& type : kTypes) {
      const std::vector<std::int64_t> size{61, 75, 43};
      Program program = make_program(
          op, 2, type.dtype,
          std::vector<std::int64_t>(size.end() - static_cast<std::ptrdiff_t>(op.extents.size()), size.end()),
          type.precision);
      Schedule schedule = Schedule::library(program);
      for (std::size_t i = 0; i < program.ops().size(); ++i) {
        if (program.ops()[i].kind == OpKind::matmul) schedule.tile(Tensor(&program, static_cast<int>(i)), {13, 17});
      }
      expect_exact(program, schedule, topology(2));
    }
  }
}

TEST_F(CudaLibrary, LeadingDimensionsAreBatchesInAnyCombination) {
  struct Shapes {
    Shape a;
    Shape b;
  };
  for (const Shapes& shapes :
       {Shapes{{6, 33, 20}, {6, 20, 17}}, Shapes{{6, 33, 20}, {20, 17}}, Shapes{{33, 20}, {6, 20, 17}},
        Shapes{{2, 3, 5, 8}, {2, 3, 8, 7}}, Shapes{{2, 3, 5, 8}, {3, 8, 7}}, Shapes{{2, 1, 5, 8}, {1, 3, 8, 7}}}) {
    for (const Type& type : kTypes) {
      Program program("batches", 1);
      const Tensor a = program.input("a", type.dtype, shapes.a, Replicate());
      const Tensor b = program.input("b", type.dtype, shapes.b, Replicate());
      const Tensor y = matmul(a, b, type.precision);
      program.output("y", y);
      Schedule tiled = Schedule::library(program);
      Shape tile = Shape::filled(y.shape().size(), 2);
      tile[tile.size() - 1] = 5;
      tiled.tile(y, tile);
      for (const Schedule& schedule : {Schedule::library(program), tiled}) expect_exact(program, schedule, topology(1));
    }
  }
}

TEST_F(CudaLibrary, RandomProgramsGiveTheInterpretersValues) {
  int products = 0;
  for (std::uint64_t seed = 1; seed <= kSeeds && !HasFailure(); ++seed) {
    const RandomCase one = random_case(seed);
    products += one.products;
    expect_exact(one.program, one.schedule, topology(one.program.world(), 3), seed);
    if (HasFailure()) fmt::print("seed {}\n{}", seed, one.program.to_text());
  }
  EXPECT_GT(products, static_cast<int>(kSeeds) / 2);
}

TEST_F(CudaLibrary, ErrorsOnAnyNumbersAreThoseOfTheType) {
  for (const char* name : {"gemm_all_reduce", "all_gather_gemm"}) {
    for (const Type& type : kTypes) {
      const Program program =
          make_program(find_operator(name), 2, type.dtype, std::vector<std::int64_t>{136, 264, 1000}, type.precision);
      const Plan plan = lower(program, Schedule::library(program), topology(2)).plan;
      const Bindings inputs = random_inputs(program, 2, Fill::normal);
      const Bindings outputs = testing::run_threads(program, plan, {inputs}, on_gpus()).outputs;
      const Accuracy accuracy = measure_accuracy(program, inputs, outputs);
      // Operands that are cut to tf32, not rounded, are off by twice as much at most, and all to one side.
      const double allowed = accuracy.allowed * (type.precision == Precision::tf32 ? 3 : 1);
      fmt::print("{} {}: error {:.3g}, allowed {:.3g}\n", name,
                 type.precision == Precision::tf32 ? "tf32" : name_of(type.dtype), accuracy.error, allowed);
      EXPECT_LE(accuracy.error, allowed);
    }
  }
}

// Delays move what is ready when; each replay has inputs of its own.
TEST_F(CudaLibrary, ACapturedRunIsReplayed) {
  constexpr std::uint64_t kReplays = 100;
  for (const char* name : {"gemm_all_reduce", "all_gather_gemm"}) {
    Program program = make_program(find_operator(name), 2, DType::bf16, std::vector<std::int64_t>{256, 512, 128});
    Schedule schedule = Schedule::library(program);
    for (std::size_t i = 0; i < program.ops().size(); ++i) {
      if (program.ops()[i].kind == OpKind::matmul) schedule.tile(Tensor(&program, static_cast<int>(i)), {32, 0});
    }
    std::vector<Bindings> inputs;
    std::vector<Bindings> expected;
    for (std::uint64_t run = 0; run < 8; ++run) {
      inputs.push_back(random_inputs(program, run, Fill::integers));
      Bindings copy = inputs.back();
      expected.push_back(interpret(program, copy));
    }
    const ProvenPlan plan = ProvenPlan::prove(lower(program, schedule, topology(2)).plan);
    Group::threads(2, [&](Group& group) {
      CudaExecutor executor(group, plan, {.delay_ns = 20'000});
      const cuda::OwnStream stream;
      const cuda::CapturedGraph graph(stream.get(), [&] { executor.enqueue(stream.get()); });
      group.barrier("captured");
      for (std::uint64_t run = 0; run < kReplays; ++run) {
        for (const auto& [input, parts] : inputs[run % inputs.size()]) {
          if (executor.holds(input)) executor.set_input(input, parts[group.rank()]);
        }
        graph.launch();
        executor.synchronize(stream.get());
        for (const auto& [output, parts] : expected[run % inputs.size()]) {
          EXPECT_EQ(max_difference(parts[group.rank()], executor.get(output)), 0)
              << name << ": '" << output << "' of rank " << group.rank() << " in replay " << run;
        }
      }
    });
  }
}

TEST_F(CudaLibrary, ItsTasksAreInTheTrace) {
  const Program program =
      make_program(find_operator("gemm_reduce_scatter"), 2, DType::bf16, std::vector<std::int64_t>{256, 512, 128});
  const Plan plan = lower(program, Schedule::library(program), topology(2)).plan;
  const testing::Outcome outcome =
      testing::run_threads(program, plan, {random_inputs(program, 1, Fill::integers)}, on_gpus({.trace = true}));
  for (const auto& trace : outcome.traces) {
    EXPECT_GT(summarise(plan, trace).library_us, 0);
    for (const TraceEvent& event : trace) EXPECT_LE(event.begin, event.end);
  }
}

// How many ranks refuse the plan with these words when the executor is made.
int refusals_of(const Plan& plan, const std::string& part) {
  const ProvenPlan proven = ProvenPlan::prove(plan);
  std::atomic<int> refused = 0;
  EXPECT_THROW(Group::threads(plan.ranks(),
                              [&](Group& group) {
                                try {
                                  const CudaExecutor executor(group, proven);
                                } catch (const Error& error) {
                                  refused += std::string(error.what()).find(part) != std::string::npos;
                                  throw;
                                }
                              }),
               Error);
  return refused;
}

TEST_F(CudaLibrary, NeedsMultiprocessorsThatTheLanesOfAllRanksLeave) {
  const int gpus = static_cast<int>(cuda::gpus().size());
  const int lanes = (cuda::gpus()[0].multiprocessors - cuda::kLibraryMultiprocessors) / (gpus >= 2 ? 1 : 2) + 1;
  // So large that every lane has something to do.
  const Program program =
      make_program(find_operator("gemm_all_reduce"), 2, DType::bf16, std::vector<std::int64_t>{4096, 8192, 64});
  const Plan plan = lower(program, Schedule::library(program), topology(2, lanes)).plan;
  ASSERT_EQ(std::count_if(plan.lanes.begin(), plan.lanes.end(),
                          [](const Lane& lane) { return lane.engine == Engine::compute; }),
            2 * lanes);
  EXPECT_EQ(refusals_of(plan, "they leave the library of matrix products too few multiprocessors"), 2);
}

TEST_F(CudaLibrary, DoesProductsOnly) {
  const Program program =
      make_program(find_operator("gemm_all_reduce"), 2, DType::bf16, std::vector<std::int64_t>{64, 64, 64});
  Plan plan = lower(program, Schedule::overlapped(program), Topology::parse("ranks=2,lanes=4,copy=1,library=1")).plan;
  for (Lane& lane : plan.lanes) {
    if (lane.engine == Engine::copy) lane.engine = Engine::library;
  }
  EXPECT_GE(refusals_of(plan, "a library lane cannot do this"), 1);  // the other may hear of it first
}

}  // namespace
}  // namespace tileway
